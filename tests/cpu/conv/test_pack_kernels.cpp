#include "cpu/conv/conv_kernels.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::cpu;
using testing::as_double;

namespace {

/// 1, 2, 3, ...: exact in every type up to 256.
template <class E>
std::vector<E> counting(std::size_t count) {
  std::vector<E> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<E>(static_cast<float>(i % 255 + 1));
  return values;
}

template <class E>
void check_gather_row() {
  using T = Compute<E>;
  const std::vector<E> from = counting<E>(150);
  int wrong = 0;
  for (const std::int64_t length : {0, 1, 40, 150})
    for (const std::int64_t stride : {1, 2, 3, 4, 8})
      for (const std::int64_t first : {-300, -17, -1, 0, 5, 149, 400})
        for (const std::int64_t count : {0, 1, 16, 70}) {
          std::vector<T> to(static_cast<std::size_t>(count + 1), T{-1});
          pack_kernels<E>().gather_row(from.data(), length, first, stride, to.data(), count);
          for (std::int64_t j = 0; j < count; ++j) {
            const std::int64_t at = first + j * stride;
            const double expected = at >= 0 && at < length ? as_double(from[static_cast<std::size_t>(at)]) : 0.0;
            wrong += static_cast<double>(to[static_cast<std::size_t>(j)]) != expected;
          }
          wrong += to.back() != T{-1};
        }
  CHECK_MESSAGE(wrong == 0, cpu_isa());
}

template <class E>
void check_transpose() {
  using T = Compute<E>;
  int wrong = 0;
  for (const std::int64_t rows : {1, 3, 4, 7, 8, 11, 12, 16})
    for (const std::int64_t columns : {0, 1, 7, 8, 21})
      for (const bool scattered : {false, true}) {
        const std::int64_t stride = columns + 2, padded = rows + 2, pitch = padded + 1;
        const std::vector<E> from = counting<E>(static_cast<std::size_t>(rows * stride));
        std::vector<std::int64_t> where;  // reversed, every third column omitted
        for (std::int64_t j = 0; j < columns; ++j) where.push_back(j % 3 == 2 ? -1 : columns - 1 - j);
        std::vector<T> to(static_cast<std::size_t>(columns * pitch), T{-1}), expected = to;
        pack_kernels<E>().transpose(from.data(), stride, rows, padded, columns, scattered ? where.data() : nullptr, to.data(),
                                    pitch);
        for (std::int64_t j = 0; j < columns; ++j) {
          const std::int64_t row = scattered ? where[static_cast<std::size_t>(j)] : j;
          for (std::int64_t m = 0; row >= 0 && m < padded; ++m)
            expected[static_cast<std::size_t>(row * pitch + m)] =
                m < rows ? static_cast<T>(as_double(from[static_cast<std::size_t>(m * stride + j)])) : T{0};
        }
        wrong += to != expected;
      }
  CHECK_MESSAGE(wrong == 0, cpu_isa());
}

template <class E>
void check_interleave() {
  using T = Compute<E>;
  int wrong = 0;
  for (const std::int64_t stride : {1, 2, 3, 4, 8, 16, 20})
    for (const std::int64_t rows : {std::int64_t{1}, stride})
      for (const std::int64_t count : {1, 15, 16, 40})
        for (const std::int64_t cut : {0, 1, 9}) {
          const std::int64_t pitch = count + 64, last = count * stride - cut;
          const std::vector<T> from = counting<T>(static_cast<std::size_t>(rows * pitch));
          std::vector<E> to(static_cast<std::size_t>(count * stride), static_cast<E>(-1.0F));
          pack_kernels<E>().interleave(from.data(), pitch, rows, stride, count, last, to.data());
          for (std::int64_t t = 0; t < count * stride; ++t) {
            const std::int64_t r = t % stride;
            const double expected =
                t < last && r < rows ? static_cast<double>(from[static_cast<std::size_t>(r * pitch + t / stride)]) : -1;
            wrong += as_double(to[static_cast<std::size_t>(t)]) != expected;
          }
        }
  CHECK_MESSAGE(wrong == 0, cpu_isa());
}

template <class E>
void check_all_finite() {
  using T = Compute<E>;
  int wrong = 0;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{77}, std::size_t{300}}) {
    std::vector<T> values(count + 1, std::numeric_limits<T>::max());
    values[count] = std::numeric_limits<T>::infinity();  // after the last
    const auto finite = [&] { return pack_kernels<E>().all_finite(values.data(), static_cast<std::int64_t>(count)); };
    wrong += !finite();
    for (std::size_t i = 0; i < count; ++i)
      for (const T spoilt :
           {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN()}) {
        values[i] = spoilt;
        wrong += finite();
        values[i] = -std::numeric_limits<T>::max();
      }
  }
  CHECK_MESSAGE(wrong == 0, cpu_isa());
}

template <class E>
void check_add() {
  using T = Compute<E>;
  int wrong = 0;
  for (const std::int64_t count : {0, 1, 15, 16, 45}) {
    const std::vector<T> values = counting<T>(static_cast<std::size_t>(count));
    std::vector<double> totals(static_cast<std::size_t>(count + 1), 0.25);
    pack_kernels<E>().add(values.data(), count, true, totals.data());
    for (int i = 0; i < 2; ++i) pack_kernels<E>().add(values.data(), count, false, totals.data());
    for (std::int64_t i = 0; i < count; ++i)
      wrong += totals[static_cast<std::size_t>(i)] != 3 * static_cast<double>(values[static_cast<std::size_t>(i)]);
    wrong += totals.back() != 0.25;
  }
  CHECK_MESSAGE(wrong == 0, cpu_isa());
}

template <class E>
void check_all() {
  check_add<E>();
  check_all_finite<E>();
  check_gather_row<E>();
  check_transpose<E>();
  check_interleave<E>();
}

}  // namespace

TEST_CASE("rows, transposition, interleaving, sums and the search for infinities, every type on every instruction set") {
  testing::for_each_isa([] {
    check_all<float>();
    check_all<double>();
    check_all<Half>();
    check_all<BFloat16>();
  });
}
