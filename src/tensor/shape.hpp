#pragma once
// Shapes and strides: up to kMaxRank signed 64-bit numbers, stored in place.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <vector>

namespace polyphase {

inline constexpr int kMaxRank = 8;

/// A short list of sizes or strides (in elements), outermost first. Behaves like a vector with a fixed capacity of kMaxRank.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> values);  ///< throws ShapeError past kMaxRank
  explicit Shape(const std::vector<std::int64_t>& values);
  /// `rank` copies of `value`.
  [[nodiscard]] static Shape filled(int rank, std::int64_t value);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] bool empty() const noexcept { return rank_ == 0; }
  [[nodiscard]] std::int64_t operator[](int i) const noexcept { return values_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] std::int64_t& operator[](int i) noexcept { return values_[static_cast<std::size_t>(i)]; }
  /// The last value. Undefined on an empty shape.
  [[nodiscard]] std::int64_t back() const noexcept { return (*this)[rank_ - 1]; }
  [[nodiscard]] const std::int64_t* begin() const noexcept { return values_.data(); }
  [[nodiscard]] const std::int64_t* end() const noexcept { return values_.data() + rank_; }
  void push_back(std::int64_t value);  ///< throws ShapeError past kMaxRank
  void insert(int position, std::int64_t value);
  void erase(int position);
  /// Product of all values; 1 for rank 0. Throws ShapeError if it does not fit in 64 bits or a value is negative.
  [[nodiscard]] std::int64_t numel() const;

  friend bool operator==(const Shape& a, const Shape& b) noexcept;

 private:
  std::array<std::int64_t, kMaxRank> values_{};
  int rank_ = 0;
};

/// "(4, 8, 100)", "(3,)", "()".
[[nodiscard]] std::string to_string(const Shape& shape);
std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Row-major strides, in elements.
[[nodiscard]] Shape contiguous_strides(const Shape& shape);
/// NumPy's broadcasting rule. Throws ShapeError naming `operation` and both shapes.
[[nodiscard]] Shape broadcast_shapes(const char* operation, const Shape& a, const Shape& b);
/// Maps `dim` in [-rank, rank) to [0, rank). Throws ShapeError naming `operation`.
[[nodiscard]] int normalize_dim(const char* operation, std::int64_t dim, int rank);

}  // namespace polyphase
