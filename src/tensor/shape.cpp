#include "tensor/shape.hpp"

#include <algorithm>
#include <ostream>

#include "tensor/error.hpp"

namespace polyphase {

Shape::Shape(std::initializer_list<std::int64_t> values) {
  for (const std::int64_t value : values) push_back(value);
}

Shape::Shape(const std::vector<std::int64_t>& values) {
  for (const std::int64_t value : values) push_back(value);
}

Shape Shape::filled(int rank, std::int64_t value) {
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.push_back(value);
  return shape;
}

void Shape::push_back(std::int64_t value) { insert(rank_, value); }

void Shape::insert(int position, std::int64_t value) {
  require<ShapeError>(rank_ < kMaxRank, "shape: expected at most ", kMaxRank, " dimensions, got more");
  require<ShapeError>(position >= 0 && position <= rank_, "shape: expected a position in [0, ", rank_, "], got ", position);
  for (int i = rank_; i > position; --i) (*this)[i] = (*this)[i - 1];
  (*this)[position] = value;
  ++rank_;
}

void Shape::erase(int position) {
  require<ShapeError>(position >= 0 && position < rank_, "shape: expected a position in [0, ", rank_, "), got ", position);
  for (int i = position; i + 1 < rank_; ++i) (*this)[i] = (*this)[i + 1];
  --rank_;
}

std::int64_t Shape::numel() const {
  bool has_zero = false;
  for (const std::int64_t size : *this) {
    require<ShapeError>(size >= 0, "shape: expected sizes of at least 0, got ", *this);
    has_zero = has_zero || size == 0;
  }
  if (has_zero) return 0;
  std::int64_t product = 1;
  for (const std::int64_t size : *this) {
    require<ShapeError>(!__builtin_mul_overflow(product, size, &product), "shape: the number of elements of ", *this,
                        " does not fit 64 bits");
  }
  return product;
}

bool operator==(const Shape& a, const Shape& b) noexcept { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

std::string to_string(const Shape& shape) { return concat(shape); }

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '(';
  for (int i = 0; i < shape.rank(); ++i) out << (i > 0 ? ", " : "") << shape[i];
  return out << (shape.rank() == 1 ? ",)" : ")");
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = Shape::filled(shape.rank(), 1);
  for (int i = shape.rank() - 2; i >= 0; --i) {
    // An empty dimension counts as one, so that strides stay positive.
    require<ShapeError>(!__builtin_mul_overflow(strides[i + 1], std::max<std::int64_t>(shape[i + 1], 1), &strides[i]),
                        "shape: the strides of ", shape, " do not fit 64 bits");
  }
  return strides;
}

Shape broadcast_shapes(const char* operation, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape result = Shape::filled(rank, 1);
  for (int back = 1; back <= rank; ++back) {
    const std::int64_t size_a = back <= a.rank() ? a[a.rank() - back] : 1;
    const std::int64_t size_b = back <= b.rank() ? b[b.rank() - back] : 1;
    require<ShapeError>(size_a == size_b || size_a == 1 || size_b == 1, operation,
                        ": expected shapes that broadcast together, got ", a, " and ", b);
    result[rank - back] = size_a == 1 ? size_b : size_a;
  }
  return result;
}

int normalize_dim(const char* operation, std::int64_t dim, int rank) {
  require<ShapeError>(rank > 0, operation, ": expected a tensor with dimensions, got dimension ", dim, " of one of rank 0");
  require<ShapeError>(dim >= -rank && dim < rank, operation, ": expected a dimension in [", -rank, ", ", rank, "), got ", dim);
  return static_cast<int>(dim < 0 ? dim + rank : dim);
}

}  // namespace polyphase
