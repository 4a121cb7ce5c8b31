#include "io/npy.hpp"

#include <doctest/doctest.h>

#include "support/file_bytes.hpp"
#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"
#include "support/torch_bytes.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

std::string npy(const std::string& header, const std::string& data, char version = 1) {
  const auto size = static_cast<std::uint16_t>(header.size());
  const std::string length = version == 1 ? bytes_of(size) : bytes_of(std::uint32_t{size});
  return std::string("\x93NUMPY") + version + '\0' + length + header + data;
}

std::string header(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }   \n";
}

Tensor loaded(const std::string& bytes) { return loaded_from(bytes, load_npy); }

bool refused(const std::string& bytes, const char* part) { return refuses(bytes, "load_npy", part, load_npy); }

const std::string kSix = bytes_of(std::vector<float>{0, 1, 2, 3, 4, 5});

}  // namespace

TEST_CASE("arrays as NumPy writes them") {
  CHECK(loaded(npy(header("<f4", "False", "(2, 3)"), kSix)).to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5});
  const Tensor fortran = loaded(npy(header("<f4", "True", "(2, 3)"), kSix, 2));
  CHECK(fortran.shape() == Shape{2, 3});
  CHECK(fortran.to_vector<float>() == std::vector<float>{0, 2, 4, 1, 3, 5});
  CHECK(loaded(npy(header("<i2", "False", "(3,)"), bytes_of(std::vector<std::int16_t>{-1, 2, 3}))).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{-1, 2, 3});
  CHECK(loaded(npy(header("|u1", "False", "()"), "\xff", 3)).item<std::int64_t>() == 255);
  CHECK(loaded(npy(header("<f8", "False", "(0, 5)"), "")).shape() == Shape{0, 5});
}

TEST_CASE("what is written is read again, on a boundary of 64 bytes") {
  const TemporaryDirectory directory;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i64}) {
    const Tensor x = random_f64({3, 4, 5}).to(dtype);
    save_npy(directory.file("x.npy"), x.transpose(0, 2));
    const Tensor y = load_npy(directory.file("x.npy"));
    CHECK(y.dtype() == dtype);
    CHECK(max_difference(y, x.transpose(0, 2)) == 0);
    const std::string bytes = read_bytes(directory.file("x.npy"));
    CHECK((bytes.size() - 60 * size_of(dtype)) % 64 == 0);
  }
  CHECK(loaded(to_npy(random_f64({2}).to(DType::bf16))).dtype() == DType::f32);
  CHECK(loaded(to_npy(Tensor::full({}, 3.0, {.dtype = DType::f64}))).item<double>() == 3);
}

TEST_CASE("what is no array is refused in a sentence") {
  CHECK(refused("", "at least 10 bytes"));
  CHECK(refused("hello, this is no array", "begins with"));
  CHECK(refused(npy(header("<f4", "False", "(7,)"), kSix), "does not go with 24 bytes"));
  CHECK(refused(npy(header("<f4", "False", "(5,)"), kSix), "does not go with 24 bytes"));
  CHECK(refused(npy(header("<f4", "False", "(4294967296, 4294967296, 4294967296)"), kSix), "does not go with"));
  CHECK(refused(npy(header("<f4", "False", "(99999999999999999999,)"), kSix), "a size of 63 bits"));
  CHECK(refused(npy(header("<f4", "False", "(-1,)"), kSix), "a size of 63 bits"));
  CHECK(refused(npy(header("<f4", "False", "(1,1,1,1,1,1,1,1,6)"), kSix), "at most 8 dimensions"));
  CHECK(refused(npy(header(">f4", "False", "(6,)"), kSix), "expected a descr of"));
  CHECK(refused(npy(header("|O", "False", "(6,)"), kSix), "expected a descr of"));
  CHECK(refused(npy(header("<f4", "Maybe", "(6,)"), kSix), "True or False"));
  CHECK(refused(npy("{'descr': '<f4'}", kSix), "expected descr, fortran_order and shape"));
  CHECK(refused(npy("{'descr': '<f4', 'descr': '<f4'}", kSix), "unexpected key"));
  CHECK(refused(npy(header("<f4", "False", "(6,)"), kSix, 9), "version 1, 2 or 3"));
}

TEST_CASE("a file that is cut off anywhere is refused") {
  const std::string whole = npy(header("<f4", "False", "(2, 3)"), kSix);
  for (std::size_t length = 0; length < whole.size(); ++length) CHECK(refused(whole.substr(0, length), "("));
}
