#include "cpu/elementwise/elementwise_loop.hpp"

#include <algorithm>
#include <cstring>

namespace polyphase::cpu {
namespace {

std::size_t place(int i) { return static_cast<std::size_t>(i); }

// Elements are moved as bytes, whatever their type; memcpy of a constant size is one move.
template <std::size_t kSize>
void gather_row(const char* from, std::int64_t stride, std::int64_t count, char* to) {
  const std::int64_t step = stride * static_cast<std::int64_t>(kSize);
  if (stride == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * kSize);
  } else {
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * static_cast<std::int64_t>(kSize), from + i * step, kSize);
  }
}
template <std::size_t kSize>
void scatter_row(char* to, std::int64_t stride, std::int64_t count, const char* from) {
  const std::int64_t step = stride * static_cast<std::int64_t>(kSize);
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * step, from + i * static_cast<std::int64_t>(kSize), kSize);
}

// Calls row(offset of the operand, elements of the row, elements before it) for the rows of [flat, flat + count).
template <class Row>
void for_each_row(const Loop& loop, int operand, std::int64_t flat, std::int64_t count, const Row& row) {
  LoopPosition position(loop, flat);
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t n = std::min(count - done, position.left_in_row());
    row(position.offset(operand), n, done);
    position.advance(n);
    done += n;
  }
}

template <std::size_t kSize>
void gather_sized(const Loop& loop, int operand, const void* base, std::int64_t flat, std::int64_t count, void* to) {
  constexpr auto kBytes = static_cast<std::int64_t>(kSize);
  for_each_row(loop, operand, flat, count, [&](std::int64_t offset, std::int64_t n, std::int64_t done) {
    gather_row<kSize>(static_cast<const char*>(base) + offset * kBytes, loop.inner_stride(operand), n,
                      static_cast<char*>(to) + done * kBytes);
  });
}
template <std::size_t kSize>
void scatter_sized(const Loop& loop, int operand, void* base, std::int64_t flat, std::int64_t count, const void* from) {
  constexpr auto kBytes = static_cast<std::int64_t>(kSize);
  for_each_row(loop, operand, flat, count, [&](std::int64_t offset, std::int64_t n, std::int64_t done) {
    scatter_row<kSize>(static_cast<char*>(base) + offset * kBytes, loop.inner_stride(operand), n,
                       static_cast<const char*>(from) + done * kBytes);
  });
}

}  // namespace

LoopPosition::LoopPosition(const Loop& loop, std::int64_t flat) : loop_(loop) {
  for (int d = loop.rank - 1; d >= 0; --d) {
    index_[place(d)] = flat % loop.sizes[place(d)];
    flat /= loop.sizes[place(d)];
    for (int k = 0; k < loop.operands; ++k) offsets_[place(k)] += index_[place(d)] * loop.strides[place(k)][place(d)];
  }
}

void LoopPosition::advance(std::int64_t count) {
  int d = loop_.rank - 1;
  index_[place(d)] += count;
  for (int k = 0; k < loop_.operands; ++k) offsets_[place(k)] += count * loop_.strides[place(k)][place(d)];
  while (d > 0 && index_[place(d)] == loop_.sizes[place(d)]) {  // carry into the next dimension out
    for (int k = 0; k < loop_.operands; ++k)
      offsets_[place(k)] += loop_.strides[place(k)][place(d - 1)] - loop_.sizes[place(d)] * loop_.strides[place(k)][place(d)];
    index_[place(d)] = 0;
    ++index_[place(--d)];
  }
}

void gather_elements(const Loop& loop, int operand, const void* base, std::int64_t flat, std::int64_t count, std::size_t size,
                     void* to) {
  if (size == 2) return gather_sized<2>(loop, operand, base, flat, count, to);
  if (size == 4) return gather_sized<4>(loop, operand, base, flat, count, to);
  gather_sized<8>(loop, operand, base, flat, count, to);
}

void scatter_elements(const Loop& loop, int operand, void* base, std::int64_t flat, std::int64_t count, std::size_t size,
                      const void* from) {
  if (size == 2) return scatter_sized<2>(loop, operand, base, flat, count, from);
  if (size == 4) return scatter_sized<4>(loop, operand, base, flat, count, from);
  scatter_sized<8>(loop, operand, base, flat, count, from);
}

}  // namespace polyphase::cpu
