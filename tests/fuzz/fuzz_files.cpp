// Thousands of broken and hostile files: valid files with bytes changed, removed, inserted, or cut off.
//
// usage: fuzz_files FORMAT COUNT [SEED]      FORMAT: torch, torch_before_archive, onnx, npy, safetensors
//
// Every file must load or be refused in one sentence. If one does neither, the program prints the input's number. After a crash
// the input is in a copy of the file in the folder for temporary files. Run it under AddressSanitizer (tools/test.sh
// --sanitize).

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/npy.hpp"
#include "io/safetensors.hpp"
#include "io/weights.hpp"
#include "support/temporary_directory.hpp"
#include "support/torch_bytes.hpp"
#include "tensor/error.hpp"
#include "tensor/memory.hpp"
#include "tensor/random.hpp"

namespace {

using namespace polyphase;
using namespace polyphase::testing;

// A tensor takes as many bytes as it has in the file, except that 8-bit integers become 64-bit integers.
constexpr std::size_t kBytesForOne = 16;
constexpr std::size_t kSlack = 1 << 16;

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : generator_(seed) {}

  std::size_t below(std::size_t limit) {
    return static_cast<std::size_t>(generator_.uniform() * static_cast<double>(limit)) % limit;
  }

  std::string mutated(std::string bytes) {
    for (std::size_t times = 1 + below(4); times > 0 && !bytes.empty(); --times) change(bytes);
    return bytes;
  }

 private:
  void change(std::string& bytes) {
    const std::size_t at = below(bytes.size());
    switch (below(7)) {
      case 0:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 2:
        bytes.erase(at, 1 + below(8));
        break;
      case 3:
        bytes.insert(at, 1 + below(8), static_cast<char>(below(256)));
        break;
      case 4:
        if (below(4) == 0) bytes.resize(at);
        break;
      case 5: {  // an extreme number
        constexpr std::array<std::string_view, 6> kNumbers{
            "\xff\xff\xff\xff", "\xff\xff\xff\x7f",   "\xff\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\x7f",
            "\x80\x80\x80\x80", "9999999999999999999"};
        const std::string_view number = kNumbers[below(kNumbers.size())];
        bytes.replace(at, std::min(number.size(), bytes.size() - at), number);
        break;
      }
      default: {  // a piece of the file at another position
        const std::string piece = bytes.substr(below(bytes.size()), 1 + below(40));
        bytes.insert(at, piece);
      }
    }
  }

  Generator generator_;
};

std::string pickled() {
  const std::string state =
      pickle::ordered_dict(pickle::text("a.weight") + pickle::tensor("0", 6, {2, 3}, {3, 1}) + pickle::text("b") +
                           pickle::tensor("1", 4, {2}, {2}, 1) + pickle::text("m") + pickle::number(5) + "q\x07h\x07" + "0");
  return pickle::dict(pickle::text("generator") + state + pickle::text("config") +
                      pickle::dict(pickle::text("rates") + "](" + pickle::number(8) + "\x88Ne") + pickle::text("size") +
                      pickle::call(pickle::global("torch", "Size"), pickle::sizes({3})));
}

std::string six() { return bytes_of(std::vector<float>{0, 1, 2, 3, 4, 5}); }
std::string four() { return bytes_of(std::vector<float>{6, 7, 8, 9}); }

/// A broken file: the change is applied to the whole file or to the contents of its container.
using Maker = std::function<std::string(Mutator&)>;

Maker maker_of(const std::string& format) {
  if (format == "torch")
    return [](Mutator& m) {
      const auto archive = [](const std::string& pickle) {
        return zip_of({{"a/data.pkl", pickle}, {"a/data/0", six()}, {"a/data/1", four()}, {"a/byteorder", "little"}});
      };
      const std::string whole = pickle::whole(pickled());
      return m.below(3) == 0 ? m.mutated(archive(whole)) : archive(m.mutated(whole));
    };
  if (format == "torch_before_archive")
    return [](Mutator& m) {
      return m.mutated(torch_before_archive(pickled(), {{"0", {0, 1, 2, 3, 4, 5}}, {"1", {6, 7, 8, 9}}}));
    };
  if (format == "onnx")
    return [](Mutator& m) {
      const std::string floats = protobuf::bytes(1, protobuf::varint(3)) + protobuf::number(2, 1) + protobuf::bytes(8, "list") +
                                 protobuf::bytes(4, bytes_of(std::vector<float>{7, 8, 9}));
      const std::string tensor = protobuf::tensor("a", {2, 3}, 1, six());
      return m.below(2) == 0 ? m.mutated(protobuf::model({tensor, floats}))
                             : protobuf::model({m.mutated(tensor), m.mutated(floats)});
    };
  if (format == "npy") return [](Mutator& m) { return m.mutated(to_npy(Tensor::ones({2, 3}))); };
  if (format == "safetensors")
    return [](Mutator& m) {
      std::string header = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"__metadata__":{"k":"v"}})";
      const auto whole = [](const std::string& text) {
        return bytes_of(static_cast<std::uint64_t>(text.size())) + text + six();
      };
      return m.below(2) == 0 ? m.mutated(whole(header)) : whole(m.mutated(header));
    };
  std::fprintf(stderr, "fuzz_files: expected torch, torch_before_archive, onnx, npy or safetensors, got %s\n", format.c_str());
  std::exit(2);
}

struct Counts {
  long loaded = 0, refused = 0, wrong = 0;
};

void try_one(const std::string& path, const std::string& bytes, long number, Counts& counts) {
  write_bytes(path, bytes);
  reset_peak_memory(Device::cpu());
  const std::size_t before = memory_stats(Device::cpu()).live_bytes;
  const auto wrong = [&](const char* what) {
    std::printf("input %ld: %s\n", number, what);
    ++counts.wrong;
  };
  try {
    const WeightsFile file = load_weights(path);
    ++counts.loaded;
    for (const auto& [name, tensor] : file.tensors) static_cast<void>(tensor.clone());  // every element can be read
  } catch (const FormatError& error) {
    ++counts.refused;
    if (std::string_view(error.what()).find(path) == std::string_view::npos) wrong(error.what());
  } catch (const std::exception& error) {
    wrong(error.what());
  }
  if (memory_stats(Device::cpu()).peak_bytes - before > kBytesForOne * bytes.size() + kSlack)
    wrong("more memory than the file can need");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: fuzz_files FORMAT COUNT [SEED]\n");
    return 2;
  }
  const Maker make = maker_of(argv[1]);
  const long count = std::atol(argv[2]);
  Mutator mutator(argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  const TemporaryDirectory directory;
  const std::string path = directory.file("input");
  Counts counts;
  for (long i = 0; i < count && counts.wrong < 10; ++i) try_one(path, make(mutator), i, counts);
  std::printf("%s: %ld inputs: %ld loaded, %ld refused\n", argv[1], count, counts.loaded, counts.refused);
  // If all mutations fail, or none, nothing is tested.
  const bool is_useful = counts.loaded > 0 && counts.refused > 0;
  const bool passed = counts.wrong == 0 && is_useful;
  std::printf("test cases: %d passed, %d failed, 0 skipped\n", passed ? 1 : 0, passed ? 0 : 1);
  return passed ? 0 : 1;
}
