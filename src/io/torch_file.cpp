#include "io/torch_file.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "io/mapped_file.hpp"
#include "io/pickle.hpp"
#include "io/safetensors_header.hpp"
#include "io/zip.hpp"

namespace polyphase {
namespace {

using io::ByteReader;
using io::Pickle;
using io::PickleStorage;
using io::PickleTensor;
using io::PickleValue;
using Json = nlohmann::json;

constexpr const char* kLoadTorch = "load_torch";
// The first pickle of the format before the archive: the number 0x1950a86a20f9469cfc6c. Then the protocol, 1001.
constexpr std::string_view kPickleMagic = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.";
constexpr std::string_view kProtocol = "\x80\x02M\xe9\x03.";
constexpr int kDeepest = 32;  // containers in containers
constexpr std::size_t kLongestName = 1000;
constexpr std::size_t kMostVisits = std::size_t{1} << 20;
constexpr std::size_t kMostText = std::size_t{1} << 26;  // names and texts together: a value may be referred to many times

/// The file and where its storages are.
class TorchReader {
 public:
  explicit TorchReader(const std::string& path)
      : path_(path), file_(std::make_shared<MappedFile>(kLoadTorch, path)), bytes_(file_->data(), file_->size()) {}

  TorchFile read() {
    if (bytes_.starts_with("PK\x03\x04"))
      read_archive();
    else if (bytes_.starts_with(kPickleMagic))
      read_before_archive();
    else
      fail("expected a file of torch.save, a ZIP archive or its format before PyTorch 1.6");
    TorchFile result;
    Json plain = walk(pickle_->root(), "", result.tensors);
    result.plain = (plain.is_object() ? plain : Json::object()).dump();
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw FormatError(concat(kLoadTorch, ": ", path_, ": ", what)); }

  void read_archive() {
    std::map<std::string, io::ZipMember> members = io::zip_members(kLoadTorch, path_, bytes_);
    constexpr std::string_view kPickle = "data.pkl";
    const auto found = std::find_if(members.begin(), members.end(), [&](const auto& member) {
      const std::string& name = member.first;
      return name == kPickle || (name.ends_with("/data.pkl") && name.find('/') == name.size() - kPickle.size() - 1);
    });
    if (found == members.end()) fail("the archive has no data.pkl: it is not torch.save's");
    const std::string folder = found->first.substr(0, found->first.size() - kPickle.size());
    const auto order = members.find(folder + "byteorder");
    if (order != members.end() && bytes_.substr(order->second.begin, order->second.size) != "little")
      fail("expected little-endian numbers");
    ByteReader reader(kLoadTorch, path_, bytes_.substr(found->second.begin, found->second.size), found->second.begin);
    take_pickle(reader);
    for (auto& [name, member] : members)
      if (name.starts_with(folder + "data/")) places_.emplace(name.substr(folder.size() + 5), member);
  }

  /// Pickles of a magic number, the protocol, sizes of the system's types, the object, the storages' keys; then each storage, a
  /// count of elements before it.
  void read_before_archive() {
    ByteReader reader(kLoadTorch, path_, bytes_);
    static_cast<void>(reader.take(kPickleMagic.size()));
    reader.expect(reader.take(kProtocol.size()) == kProtocol, "expected the protocol 1001 of torch.save");
    check_system(Pickle(reader).root());
    take_pickle(reader);
    const Pickle keys(reader);
    const auto* const list = keys.root().as<io::PickleList>();
    reader.expect(list != nullptr, "expected a list of storages");
    std::map<std::string_view, const PickleStorage*> storages;
    collect(pickle_->root(), storages);
    for (const PickleValue* item : list->items) {
      const auto* const key = item->as<std::string>();
      const auto storage = key == nullptr ? storages.end() : storages.find(*key);
      reader.expect(storage != storages.end(), "the list of storages has one that no tensor uses");
      const auto numel = reader.number<std::int64_t>();
      reader.expect(numel == storage->second->numel, "expected ", storage->second->numel, " elements of the storage ",
                    io::in_quotes(*key), ", got ", numel);
      const std::size_t width = size_of(storage->second->type), begin = reader.offset();
      reader.expect(static_cast<std::uint64_t>(numel) <= reader.left() / width, "the storage ", io::in_quotes(*key),
                    " reaches past the file's end");
      static_cast<void>(reader.take(static_cast<std::uint64_t>(numel) * width));
      places_.emplace(*key, io::ZipMember{begin, static_cast<std::size_t>(numel) * width});
    }
  }

  void check_system(const PickleValue& system) const {
    const auto* const dict = system.as<io::PickleDict>();
    if (dict == nullptr) return;
    for (const auto& [key, value] : dict->items)
      if (const auto* name = key->as<std::string>(); name != nullptr && *name == "little_endian")
        if (const bool* is_little = value->as<bool>(); is_little != nullptr && !*is_little)
          fail("expected little-endian numbers");
  }

  void take_pickle(ByteReader& reader) {
    pickle_.emplace(reader);
    check_nesting(pickle_->root(), 0);
  }

  /// Containers may contain themselves, or each other many times. Before anything is made of them.
  void check_nesting(const PickleValue& value, int depth) {
    if (depth > kDeepest || ++visits_ > kMostVisits) fail("containers of the pickle are nested too deeply");
    if (const auto* list = value.as<io::PickleList>())
      for (const PickleValue* item : list->items) check_nesting(*item, depth + 1);
    if (const auto* dict = value.as<io::PickleDict>())
      for (const auto& [key, item] : dict->items) check_nesting(*item, depth + 1);
  }

  /// Every storage by its key.
  void collect(const PickleValue& value, std::map<std::string_view, const PickleStorage*>& storages) {
    if (const auto* tensor = value.as<PickleTensor>()) storages.emplace(tensor->storage->key, tensor->storage);
    if (const auto* list = value.as<io::PickleList>())
      for (const PickleValue* item : list->items) collect(*item, storages);
    if (const auto* dict = value.as<io::PickleDict>())
      for (const auto& [key, item] : dict->items) collect(*item, storages);
  }

  Tensor tensor_of(const PickleTensor& tensor, const std::string& name) {
    const PickleStorage& storage = *tensor.storage;
    const auto place = places_.find(storage.key);
    if (place == places_.end()) fail(concat("the storage of the tensor ", io::in_quotes(name), " is missing"));
    const std::size_t width = size_of(storage.type);
    if (static_cast<std::uint64_t>(storage.numel) > place->second.size / width)
      fail(concat("the storage of the tensor ", io::in_quotes(name), " has ", place->second.size, " bytes, expected ",
                  storage.numel, " elements of ", width));
    elements_ += static_cast<std::uint64_t>(tensor.numel);
    if (elements_ > bytes_.size()) fail("the tensors have more elements than the file has bytes");
    char* const data = file_->data() + place->second.begin;
    if (tensor.strides == contiguous_strides(tensor.shape) || tensor.numel == 0)
      return file_tensor(file_, data + static_cast<std::size_t>(tensor.offset) * width, storage.type, tensor.shape);
    const Tensor whole = file_tensor(file_, data, storage.type, Shape{storage.numel});
    return Tensor::over(whole.storage(), tensor.shape, tensor.strides, tensor.offset, whole.dtype()).contiguous();
  }

  /// Adds the tensors below `value` to `tensors`; returns what else there is, null where that is nothing.
  Json walk(const PickleValue& value, const std::string& name, NamedTensors& tensors) {
    if (name.size() > kLongestName) fail(concat("a name is longer than ", kLongestName, " bytes"));
    const auto* const text = value.as<std::string>();
    text_ += name.size() + (text == nullptr ? 0 : text->size());
    if (text_ > kMostText) fail(concat("its names and texts have more than ", kMostText, " bytes"));
    if (const auto* tensor = value.as<PickleTensor>()) {
      tensors.emplace_back(name, tensor_of(*tensor, name));
      return nullptr;
    }
    const auto below = [&](const std::string& key) { return name.empty() ? key : name + "." + key; };
    if (const auto* dict = value.as<io::PickleDict>()) {
      Json object = Json::object();
      for (const auto& [key, item] : dict->items) {
        const auto* const word = key->as<std::string>();
        const auto* const number = key->as<std::int64_t>();
        if (word == nullptr && number == nullptr) continue;  // None, a tuple: no name
        const std::string own = word != nullptr ? *word : std::to_string(*number);
        Json inside = walk(*item, below(own), tensors);
        if (!inside.is_null() && is_utf8(own)) object[own] = std::move(inside);
      }
      return object.empty() ? Json() : object;
    }
    if (const auto* list = value.as<io::PickleList>()) {
      Json array = Json::array();
      for (std::size_t i = 0; i < list->items.size(); ++i) {
        Json inside = walk(*list->items[i], below(std::to_string(i)), tensors);
        if (!inside.is_null()) array.push_back(std::move(inside));
      }
      return array.empty() ? Json() : array;
    }
    if (const auto* number = value.as<std::int64_t>()) return *number;
    if (const auto* number = value.as<double>()) return *number;
    if (const auto* truth = value.as<bool>()) return *truth;
    if (text != nullptr && is_utf8(*text)) return *text;
    return nullptr;
  }

  static bool is_utf8(const std::string& text) {
    try {
      static_cast<void>(Json(text).dump());
      return true;
    } catch (const Json::exception&) {
      return false;
    }
  }

  const std::string& path_;
  std::shared_ptr<MappedFile> file_;
  std::string_view bytes_;
  std::optional<Pickle> pickle_;
  std::map<std::string, io::ZipMember> places_;  // of storages, by their keys
  std::uint64_t elements_ = 0;
  std::size_t visits_ = 0;
  std::size_t text_ = 0;
};

}  // namespace

TorchFile load_torch(const std::string& path) { return TorchReader(path).read(); }

}  // namespace polyphase
