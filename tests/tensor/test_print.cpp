// The expected texts are NumPy 2's, with np.set_printoptions(precision=4).

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tensor/tensor.hpp"

namespace pp = polyphase;
using pp::DType;
using pp::Tensor;
using pp::to_string;

namespace {

std::string text(const std::vector<float>& values) { return to_string(Tensor::from_vector(values)); }
Tensor range(double end, const pp::Shape& shape, DType dtype = DType::f32) {
  return Tensor::arange(0, end, 1, {.dtype = dtype}).reshape(shape);
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("decimal points are aligned, unneeded digits are blank") {
  CHECK(text({1, 2.5f, 3.14159265f}) == "[1.     2.5    3.1416]");
  CHECK(text({0.1f, 0.2f, 0.3f}) == "[0.1 0.2 0.3]");
  CHECK(text({1, -2, 3}) == "[ 1. -2.  3.]");
  CHECK(text({0, 0}) == "[0. 0.]");
  CHECK(text({-0.0f, 0.001f}) == "[-0.     0.001]");
  CHECK(text({0.99999f, 1}) == "[1. 1.]");
  CHECK(text({1.0f / 3, 2.0f / 3}) == "[0.3333 0.6667]");
  CHECK(to_string(Tensor::full({}, 1.5)) == "1.5");
}

TEST_CASE("scientific notation where the range asks for it") {
  CHECK(text({1e-5f, 1}) == "[1.e-05 1.e+00]");
  CHECK(text({1e10f, 1}) == "[1.e+10 1.e+00]");
  CHECK(text({12345.678f, 1.5f}) == "[1.2346e+04 1.5000e+00]");
  CHECK(text({1e-5f}) == "[1.e-05]");
  CHECK(to_string(Tensor::from_vector<double>({1e-300, 1e300})) == "[1.e-300 1.e+300], dtype=f64");
  CHECK(to_string(Tensor::from_vector<double>({1e-5, 1e300})) == "[1.e-005 1.e+300], dtype=f64");
  CHECK(to_string(Tensor::from_vector<double>({99999999, 1e6})) == "[99999999.  1000000.], dtype=f64");
  CHECK(to_string(Tensor::from_vector<double>({123456789, 1})) == "[1.2346e+08 1.0000e+00], dtype=f64");
  CHECK(to_string(Tensor::from_vector<double>({0.001, 22.75, 333.125, -4}, {2, 2})) ==
        "[[ 1.0000e-03  2.2750e+01]\n [ 3.3312e+02 -4.0000e+00]], dtype=f64");
}

TEST_CASE("nan and inf") {
  CHECK(text({1, kNan, kInf, -kInf}) == "[  1.  nan  inf -inf]");
  CHECK(text({kNan, kInf}) == "[nan inf]");
  CHECK(to_string(Tensor::from_vector<float>({1e-10f, kNan, kInf, 1}, {2, 2})) == "[[1.e-10    nan]\n [   inf 1.e+00]]");
}

TEST_CASE("integers and the other dtypes") {
  CHECK(to_string(Tensor::from_vector<std::int64_t>({100, -3, 7})) == "[100  -3   7], dtype=i64");
  CHECK(to_string(Tensor::from_vector<float>({1, 0.1f}).to(DType::f16)) == "[1.  0.1], dtype=f16");
  CHECK(to_string(Tensor::from_vector<float>({1, 3.14159f}).to(DType::bf16)) == "[1.     3.1406], dtype=bf16");
}

TEST_CASE("nested brackets") {
  CHECK(to_string(Tensor::from_vector<float>({1, 2, 3.5f, -4}, {2, 2})) == "[[ 1.   2. ]\n [ 3.5 -4. ]]");
  CHECK(to_string(range(24, {2, 3, 4})) ==
        "[[[ 0.  1.  2.  3.]\n  [ 4.  5.  6.  7.]\n  [ 8.  9. 10. 11.]]\n\n"
        " [[12. 13. 14. 15.]\n  [16. 17. 18. 19.]\n  [20. 21. 22. 23.]]]");
  CHECK(to_string(range(4, {2, 2}).transpose(0, 1)) == "[[0. 2.]\n [1. 3.]]");
}

TEST_CASE("long rows are wrapped") {
  CHECK(to_string(Tensor::arange(0, 60, 1.5)) ==
        "[ 0.   1.5  3.   4.5  6.   7.5  9.  10.5 12.  13.5 15.  16.5 18.  19.5\n"
        " 21.  22.5 24.  25.5 27.  28.5 30.  31.5 33.  34.5 36.  37.5 39.  40.5\n"
        " 42.  43.5 45.  46.5 48.  49.5 51.  52.5 54.  55.5 57.  58.5]");
}

TEST_CASE("past a thousand elements the middle is left out") {
  CHECK(to_string(range(1001, {1001}, DType::i64)) == "[   0    1    2 ...  998  999 1000], dtype=i64");
  CHECK(to_string(range(1000, {1000}, DType::i64)).find("...") == std::string::npos);
  CHECK(to_string(range(2000, {2, 1000}, DType::i64)) ==
        "[[   0    1    2 ...  997  998  999]\n [1000 1001 1002 ... 1997 1998 1999]], dtype=i64");
  CHECK(to_string(range(20000, {100, 200}, DType::i64)) ==
        "[[    0     1     2 ...   197   198   199]\n [  200   201   202 ...   397   398   399]\n"
        " [  400   401   402 ...   597   598   599]\n ...\n [19400 19401 19402 ... 19597 19598 19599]\n"
        " [19600 19601 19602 ... 19797 19798 19799]\n [19800 19801 19802 ... 19997 19998 19999]], dtype=i64");
  const std::string cube = to_string(range(8000, {20, 20, 20}, DType::i64));
  CHECK(cube.starts_with("[[[   0    1    2 ...   17   18   19]\n  [  20   21   22 ...   37   38   39]\n"));
  CHECK(cube.find("\n  ...\n  [ 340") != std::string::npos);
  CHECK(cube.find("1199]]\n\n ...\n\n [[6800") != std::string::npos);
}

TEST_CASE("empty and undefined") {
  CHECK(to_string(Tensor::zeros({0})) == "[]");
  CHECK(to_string(Tensor::zeros({0, 3}, {.dtype = DType::f64})) == "[], shape=(0, 3), dtype=f64");
  CHECK(to_string(Tensor()) == "undefined");
}

TEST_CASE("printing leaves the tape alone") {
  Tensor tensor = Tensor::ones({2});
  tensor.set_requires_grad(true);
  CHECK(to_string(tensor) == "[1. 1.]");
}
