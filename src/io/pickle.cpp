#include "io/pickle.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "io/safetensors_header.hpp"

namespace polyphase::io {
namespace {

constexpr std::size_t kMostValues = std::size_t{1} << 22;  // a checkpoint has some thousands

struct StorageName {
  std::string_view name;
  FileType type;
};
constexpr StorageName kStorages[] = {{"torch.FloatStorage", FileType::f32}, {"torch.DoubleStorage", FileType::f64},
                                     {"torch.HalfStorage", FileType::f16},  {"torch.BFloat16Storage", FileType::bf16},
                                     {"torch.LongStorage", FileType::i64},  {"torch.IntStorage", FileType::i32},
                                     {"torch.ShortStorage", FileType::i16}, {"torch.CharStorage", FileType::i8},
                                     {"torch.ByteStorage", FileType::u8},   {"torch.BoolStorage", FileType::boolean}};

constexpr std::string_view kOrderedDict = "collections.OrderedDict";
constexpr std::string_view kSize = "torch.Size";
constexpr std::string_view kTensor = "torch._utils._rebuild_tensor";
constexpr std::string_view kTensor2 = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kParameter = "torch._utils._rebuild_parameter";
constexpr std::string_view kFunctions[] = {kOrderedDict, kSize, kTensor, kTensor2, kParameter};

/// The name as the tables above hold it; empty where they do not.
std::string_view known_name(std::string_view name) {
  for (const StorageName& storage : kStorages)
    if (storage.name == name) return storage.name;
  const auto* const found = std::find(std::begin(kFunctions), std::end(kFunctions), name);
  return found == std::end(kFunctions) ? std::string_view{} : *found;
}

/// Runs the opcodes of one pickle.
class Machine {
 public:
  Machine(ByteReader& reader, std::deque<PickleValue>& values) : reader_(reader), values_(values) {}

  const PickleValue* run() {
    while (true) {
      const auto opcode = reader_.number<std::uint8_t>();
      if (opcode == '.') break;
      if (!constant(opcode) && !container(opcode) && !memo(opcode) && !call(opcode))
        reader_.fail(
            concat("the pickle has the opcode ", static_cast<int>(opcode), ", which tensors and plain containers do not need"));
    }
    return pop();
  }

 private:
  using Value = PickleValue;

  template <class Content>
  void push(Content content) {
    reader_.expect(values_.size() < kMostValues, "the pickle has more than ", kMostValues, " values");
    values_.push_back({std::move(content)});
    stack_.push_back(&values_.back());
  }
  Value* pop() {
    reader_.expect(!stack_.empty() && stack_.size() > floor(), "the pickle takes a value from an empty stack");
    Value* const value = stack_.back();
    stack_.pop_back();
    return value;
  }
  [[nodiscard]] std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  /// What was pushed since the last mark, which goes.
  std::vector<Value*> pop_to_mark() {
    reader_.expect(!marks_.empty(), "the pickle returns to a mark that does not exist");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Value*> taken(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return taken;
  }
  template <class Kind>
  Kind& top(const char* what) {
    reader_.expect(stack_.size() > floor(), "the pickle takes a value from an empty stack");
    Kind* const content = std::get_if<Kind>(&stack_.back()->content);
    reader_.expect(content != nullptr, "the pickle expects ", what, " and has none");
    return *content;
  }
  void push_text(std::uint64_t length) { push(std::string(reader_.take(length))); }
  void push_list(const std::vector<Value*>& items) { push(PickleList{{items.begin(), items.end()}}); }

  bool constant(std::uint8_t opcode);
  bool container(std::uint8_t opcode);
  bool memo(std::uint8_t opcode);
  bool call(std::uint8_t opcode);

  void push_integer(std::uint64_t length);
  void push_tuple(int count);
  void add_items(PickleDict& dict, const std::vector<Value*>& items);
  void push_global(std::string_view module, std::string_view name);
  void reduce();
  void push_storage();
  PickleTensor tensor(const PickleList& arguments);
  std::int64_t integer(const PickleList& list, std::size_t index, const char* what);
  Shape sizes(const PickleList& list, std::size_t index, const char* what);

  ByteReader& reader_;
  std::deque<PickleValue>& values_;
  std::vector<Value*> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, Value*> memo_;
};

bool Machine::constant(std::uint8_t opcode) {
  switch (opcode) {
    case 0x80:  // PROTO
      static_cast<void>(reader_.number<std::uint8_t>());
      return true;
    case 0x95:  // FRAME
      static_cast<void>(reader_.number<std::uint64_t>());
      return true;
    case 'N':
      push(PickleNone{});
      return true;
    case 0x88:
    case 0x89:
      push(opcode == 0x88);
      return true;
    case 'J':
      push(std::int64_t{reader_.number<std::int32_t>()});
      return true;
    case 'K':
      push(std::int64_t{reader_.number<std::uint8_t>()});
      return true;
    case 'M':
      push(std::int64_t{reader_.number<std::uint16_t>()});
      return true;
    case 0x8a:
      push_integer(reader_.number<std::uint8_t>());
      return true;
    case 'G': {  // big endian
      std::uint64_t bits = 0;
      for (const char byte : reader_.take(8)) bits = bits << 8U | static_cast<unsigned char>(byte);
      push(std::bit_cast<double>(bits));
      return true;
    }
    case 'X':
    case 'T':
    case 'B':
      push_text(reader_.number<std::uint32_t>());
      return true;
    case 0x8c:
    case 'U':
    case 'C':
      push_text(reader_.number<std::uint8_t>());
      return true;
    default:
      return false;
  }
}

bool Machine::container(std::uint8_t opcode) {
  switch (opcode) {
    case '(':
      marks_.push_back(stack_.size());
      return true;
    case ']':
    case ')':
      push(PickleList{});
      return true;
    case '}':
      push(PickleDict{});
      return true;
    case 't':
    case 'l':
      push_list(pop_to_mark());
      return true;
    case 0x85:
    case 0x86:
    case 0x87:
      push_tuple(opcode - 0x84);
      return true;
    case 'a': {
      const Value* const item = pop();
      top<PickleList>("a list").items.push_back(item);
      return true;
    }
    case 'e': {
      const std::vector<Value*> items = pop_to_mark();
      std::vector<const Value*>& list = top<PickleList>("a list").items;
      list.insert(list.end(), items.begin(), items.end());
      return true;
    }
    case 'd': {
      const std::vector<Value*> items = pop_to_mark();
      push(PickleDict{});
      add_items(top<PickleDict>("a dict"), items);
      return true;
    }
    case 's': {
      const Value* const value = pop();
      const Value* const key = pop();
      top<PickleDict>("a dict").items.emplace_back(key, value);
      return true;
    }
    case 'u': {
      const std::vector<Value*> items = pop_to_mark();
      add_items(top<PickleDict>("a dict"), items);
      return true;
    }
    default:
      return false;
  }
}

bool Machine::memo(std::uint8_t opcode) {
  const auto remember = [&](std::uint32_t index) {
    reader_.expect(stack_.size() > floor(), "the pickle takes a value from an empty stack");
    memo_[index] = stack_.back();
  };
  const auto recall = [&](std::uint32_t index) {
    const auto found = memo_.find(index);
    reader_.expect(found != memo_.end(), "the pickle refers to a value ", index, " that it has not stored");
    stack_.push_back(found->second);
  };
  switch (opcode) {
    case 'q':
      remember(reader_.number<std::uint8_t>());
      return true;
    case 'r':
      remember(reader_.number<std::uint32_t>());
      return true;
    case 0x94:  // MEMOIZE
      remember(static_cast<std::uint32_t>(memo_.size()));
      return true;
    case 'h':
      recall(reader_.number<std::uint8_t>());
      return true;
    case 'j':
      recall(reader_.number<std::uint32_t>());
      return true;
    case '0':
      static_cast<void>(pop());
      return true;
    default:
      return false;
  }
}

bool Machine::call(std::uint8_t opcode) {
  switch (opcode) {
    case 'c': {
      const std::string_view module = reader_.line();
      push_global(module, reader_.line());
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      const Value* const name = pop();
      const Value* const module = pop();
      reader_.expect(name->as<std::string>() != nullptr && module->as<std::string>() != nullptr,
                     "the pickle expects a name and has none");
      push_global(*module->as<std::string>(), *name->as<std::string>());
      return true;
    }
    case 'R':
      reduce();
      return true;
    case 'Q':
      push_storage();
      return true;
    case 'b':  // BUILD: a state dict is an ordered dict with a `_metadata` of versions, which no tensor depends on
      static_cast<void>(pop());
      static_cast<void>(top<PickleDict>("a dict"));
      return true;
    default:
      return false;
  }
}

/// Little endian, two's complement, `length` bytes.
void Machine::push_integer(std::uint64_t length) {
  reader_.expect(length <= 8, "the pickle has a whole number of ", length, " bytes, expected at most 8");
  std::uint64_t bits = 0;
  const std::string_view bytes = reader_.take(length);
  for (std::size_t i = 0; i < bytes.size(); ++i) bits |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  const bool is_negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80U) != 0;
  if (is_negative && bytes.size() < 8) bits |= ~std::uint64_t{0} << (8 * bytes.size());
  push(std::bit_cast<std::int64_t>(bits));
}

void Machine::push_tuple(int count) {
  PickleList list;
  list.items.resize(static_cast<std::size_t>(count));
  for (auto item = list.items.rbegin(); item != list.items.rend(); ++item) *item = pop();
  push(std::move(list));
}

void Machine::add_items(PickleDict& dict, const std::vector<Value*>& items) {
  reader_.expect(items.size() % 2 == 0, "the pickle has a dict with a key and no value");
  for (std::size_t i = 0; i < items.size(); i += 2) dict.items.emplace_back(items[i], items[i + 1]);
}

void Machine::push_global(std::string_view module, std::string_view name) {
  const std::string whole = concat(module.substr(0, 200), ".", name.substr(0, 200));
  const std::string_view known = known_name(whole);
  reader_.expect(!known.empty(), "the pickle names ", in_quotes(whole), "; only tensors and plain containers are read");
  push(PickleGlobal{known});
}

std::int64_t Machine::integer(const PickleList& list, std::size_t index, const char* what) {
  const auto* const value = index < list.items.size() ? list.items[index]->as<std::int64_t>() : nullptr;
  reader_.expect(value != nullptr && *value >= 0, "a tensor of the pickle has no ", what);
  return *value;
}

Shape Machine::sizes(const PickleList& list, std::size_t index, const char* what) {
  const auto* const values = index < list.items.size() ? list.items[index]->as<PickleList>() : nullptr;
  reader_.expect(values != nullptr, "a tensor of the pickle has no ", what);
  reader_.expect(values->items.size() <= kMaxRank, "a tensor of the pickle has ", values->items.size(),
                 " dimensions, expected at most ", kMaxRank);
  Shape shape;
  for (std::size_t i = 0; i < values->items.size(); ++i) shape.push_back(integer(*values, i, what));
  return shape;
}

/// (storage, offset, sizes, strides, ...)
PickleTensor Machine::tensor(const PickleList& arguments) {
  const auto* const storage = arguments.items.empty() ? nullptr : arguments.items.front()->as<PickleStorage>();
  reader_.expect(storage != nullptr, "a tensor of the pickle has no storage");
  PickleTensor tensor{storage, integer(arguments, 1, "offset"), sizes(arguments, 2, "sizes"), sizes(arguments, 3, "strides"),
                      0};
  reader_.expect(tensor.strides.rank() == tensor.shape.rank(), "a tensor of the pickle has ", tensor.shape.rank(),
                 " sizes and ", tensor.strides.rank(), " strides");
  const std::optional<std::int64_t> numel = checked_numel(tensor.shape);
  reader_.expect(numel && *numel <= storage->numel, "a tensor ", tensor.shape,
                 " of the pickle has more elements than its storage, which has ", storage->numel);
  tensor.numel = *numel;
  std::int64_t last = tensor.offset;  // position of the last element
  bool is_inside = *numel == 0 || last < storage->numel;
  for (int d = 0; is_inside && *numel > 0 && d < tensor.shape.rank(); ++d) {
    const std::int64_t steps = tensor.shape[d] - 1, stride = tensor.strides[d];
    is_inside = steps == 0 || stride <= (storage->numel - 1 - last) / steps;
    if (is_inside) last += steps * stride;
  }
  reader_.expect(is_inside, "a tensor ", tensor.shape, " of the pickle reaches past its storage, which has ", storage->numel,
                 " elements");
  return tensor;
}

void Machine::reduce() {
  const Value* const arguments = pop();
  const Value* const function = pop();
  const auto* const name = function->as<PickleGlobal>();
  const auto* const list = arguments->as<PickleList>();
  reader_.expect(name != nullptr && list != nullptr, "the pickle calls something other than a function");
  if (name->name == kOrderedDict) {
    push(PickleDict{});
    if (list->items.empty()) return;
    const auto* const pairs = list->items.front()->as<PickleList>();
    reader_.expect(pairs != nullptr, "the pickle makes a dict from something other than a list");
    PickleDict& dict = top<PickleDict>("a dict");
    for (const Value* item : pairs->items) {
      const auto* const pair = item->as<PickleList>();
      reader_.expect(pair != nullptr && pair->items.size() == 2, "the pickle makes a dict from something other than pairs");
      dict.items.emplace_back(pair->items[0], pair->items[1]);
    }
  } else if (name->name == kSize) {
    const auto* const sizes = list->items.empty() ? nullptr : list->items.front()->as<PickleList>();
    reader_.expect(sizes != nullptr, "the pickle makes a torch.Size from something other than a list");
    push(PickleList{sizes->items});
  } else if (name->name == kParameter) {
    const auto* const data = list->items.empty() ? nullptr : list->items.front()->as<PickleTensor>();
    reader_.expect(data != nullptr, "the pickle makes a parameter from something other than a tensor");
    push(PickleTensor(*data));
  } else {
    reader_.expect(name->name == kTensor || name->name == kTensor2, "the pickle calls ", name->name);
    push(tensor(*list));
  }
}

/// The persistent id ('storage', type, key, device, elements), whose bytes are outside the pickle.
void Machine::push_storage() {
  const Value* const id = pop();
  const auto* const list = id->as<PickleList>();
  reader_.expect(list != nullptr && list->items.size() >= 5, "the pickle has a storage of another form");
  const auto* const kind = list->items[0]->as<std::string>();
  const auto* const type = list->items[1]->as<PickleGlobal>();
  const auto* const key = list->items[2]->as<std::string>();
  reader_.expect(kind != nullptr && *kind == "storage" && type != nullptr && key != nullptr && key->size() <= 200,
                 "the pickle has a storage of another form");
  const auto* const known =
      std::find_if(std::begin(kStorages), std::end(kStorages), [&](const StorageName& s) { return s.name == type->name; });
  reader_.expect(known != std::end(kStorages), "the pickle has a storage of ", type->name);
  push(PickleStorage{known->type, *key, integer(*list, 4, "number of elements")});
}

}  // namespace

Pickle::Pickle(ByteReader& reader) { root_ = Machine(reader, values_).run(); }

}  // namespace polyphase::io
