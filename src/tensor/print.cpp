// Printing, by NumPy's rules (numpy/_core/arrayprint.py, FloatingFormat and _formatArray) with its options precision=4,
// threshold=1000, edgeitems=3, linewidth=75.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "tensor/tensor.hpp"

namespace polyphase {
namespace {

constexpr int kPrecision = 4;
constexpr std::int64_t kThreshold = 1000;
constexpr std::int64_t kEdgeItems = 3;
constexpr std::size_t kLineWidth = 75;

// The parts of a number: "-12" "." "5" and, in scientific notation, "+08".
struct Number {
  std::string whole;
  std::string fraction;
  std::string exponent;
};

// The fewest digits that distinguish `value` from its neighbours, but at most kPrecision after the point.
template <class T>
Number digits_of(T value, std::chars_format format) {
  std::array<char, 512> buffer;
  const auto split = [&](const char* end) {
    const std::string text(static_cast<const char*>(buffer.data()), end);
    const std::size_t e = std::min(text.find('e'), text.size());
    const std::size_t point = std::min(text.find('.'), e);
    Number number{text.substr(0, point), "", e < text.size() ? text.substr(e + 1) : ""};
    if (point < e) number.fraction = text.substr(point + 1, e - point - 1);
    return number;
  };
  Number number = split(std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr);
  if (number.fraction.size() > kPrecision) {
    number = split(std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, kPrecision).ptr);
    number.fraction.erase(number.fraction.find_last_not_of('0') + 1);
  }
  return number;
}

// Scientific notation if positional digits would hide small values or be long.
template <class T>
bool wants_scientific(const std::vector<T>& values) {
  double largest = 0;
  double smallest = INFINITY;
  for (const T value : values) {
    const double magnitude = std::abs(static_cast<double>(value));
    if (!std::isfinite(magnitude) || magnitude == 0) continue;
    largest = std::max(largest, magnitude);
    smallest = std::min(smallest, magnitude);
  }
  return largest >= 1e8 || (largest > 0 && (smallest < 1e-4 || largest / smallest > 1000));
}

std::string right_aligned(std::string text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

// Points are aligned; trailing zeros are blanks (positional) or digits (scientific).
template <class T>
std::vector<std::string> format_floats(const std::vector<T>& values) {
  const bool scientific = wants_scientific(values);
  std::vector<Number> numbers;
  Number widest;  // the longest of each part
  const auto keep_longer = [](std::string& kept, const std::string& text) {
    if (text.size() > kept.size()) kept = text;
  };
  for (const T value : values) {
    Number number;
    if (std::isfinite(value)) number = digits_of(value, scientific ? std::chars_format::scientific : std::chars_format::fixed);
    keep_longer(widest.whole, number.whole);
    keep_longer(widest.fraction, number.fraction);
    keep_longer(widest.exponent, number.exponent);
    numbers.push_back(std::move(number));
  }
  const std::size_t tail = 1 + widest.fraction.size() + (scientific ? 1 + widest.exponent.size() : 0);
  std::size_t width = widest.whole.empty() ? 0 : widest.whole.size() + tail;
  const auto special = [](T value) { return std::string(std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf"); };
  for (const T value : values) {
    if (!std::isfinite(value)) width = std::max(width, special(value).size());
  }
  std::vector<std::string> words;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      words.push_back(right_aligned(special(values[i]), width));
      continue;
    }
    Number& number = numbers[i];
    number.fraction.resize(widest.fraction.size(), scientific ? '0' : ' ');
    std::string word = right_aligned(number.whole, width - tail) + "." + number.fraction;
    if (scientific) {
      number.exponent.insert(1, widest.exponent.size() - number.exponent.size(), '0');
      word += "e" + number.exponent;
    }
    words.push_back(std::move(word));
  }
  return words;
}

std::vector<std::string> format_integers(const std::vector<std::int64_t>& values) {
  std::vector<std::string> words;
  std::size_t width = 0;
  for (const std::int64_t value : values) {
    words.push_back(std::to_string(value));
    width = std::max(width, words.back().size());
  }
  for (std::string& word : words) word = right_aligned(std::move(word), width);
  return words;
}

// Collects the elements that are shown and lays out their words in nested brackets.
class Printer {
 public:
  explicit Printer(const Tensor& tensor) : host_(tensor.detach().cpu()), summarise_(tensor.numel() > kThreshold) {}

  std::string run() {
    words_ = dispatch(host_.dtype(), [&]<class T>(T) {
      if constexpr (std::is_same_v<T, std::int64_t>) {
        return format_integers(collect<T, T>());
      } else if constexpr (std::is_same_v<T, double>) {
        return format_floats(collect<T, T>());
      } else {
        return format_floats(collect<T, float>());
      }
    });
    return layout(0, 1, kLineWidth);
  }

 private:
  [[nodiscard]] bool elides(int dim) const { return summarise_ && host_.size(dim) > 2 * kEdgeItems; }

  // Calls at(i) for each shown index of a dimension, and gap() for omitted ones.
  template <class At, class Gap>
  void for_each_shown(int dim, const At& at, const Gap& gap) {
    const std::int64_t size = host_.size(dim);
    for (std::int64_t i = 0; i < size; ++i) {
      if (elides(dim) && i == kEdgeItems) {
        gap();
        i = size - kEdgeItems;
      }
      at(i);
    }
  }

  template <class T, class Value>
  std::vector<Value> collect() {
    std::vector<Value> values;
    const T* data = host_.data<T>();
    const auto visit = [&](const auto& self, int dim, std::int64_t position) -> void {
      if (dim == host_.rank()) return values.push_back(static_cast<Value>(data[position]));
      for_each_shown(
          dim, [&](std::int64_t i) { self(self, dim + 1, position + i * host_.stride(dim)); }, [] {});
    };
    visit(visit, 0, 0);
    return values;
  }

  // `width` is the line width without the brackets that close at its end.
  std::string layout(int dim, std::size_t indent, std::size_t width) {
    if (dim == host_.rank()) return words_[next_word_++];
    return dim + 1 == host_.rank() ? layout_row(dim, indent, width) : layout_block(dim, indent, width);
  }

  std::string layout_row(int dim, std::size_t indent, std::size_t width) {
    const std::string margin(indent, ' ');
    std::string text;
    std::string line = margin;
    const auto add = [&](const std::string& word) {
      if (line.size() > indent && line.size() + word.size() > width - 1) {
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
        line = margin;
      }
      line += word + " ";
    };
    for_each_shown(
        dim, [&](std::int64_t) { add(words_[next_word_++]); }, [&] { add("..."); });
    line.pop_back();  // the separator after the last word
    return "[" + (text + line).substr(indent) + "]";
  }

  std::string layout_block(int dim, std::size_t indent, std::size_t width) {
    const std::string between = std::string(static_cast<std::size_t>(host_.rank() - dim - 1), '\n') + std::string(indent, ' ');
    std::string text;
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : between) + part; };
    for_each_shown(
        dim, [&](std::int64_t) { add(layout(dim + 1, indent + 1, width - 1)); }, [&] { add("..."); });
    return "[" + text + "]";
  }

  Tensor host_;
  bool summarise_;
  std::vector<std::string> words_;
  std::size_t next_word_ = 0;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "undefined";
  if (tensor.numel() > 0) {
    out << Printer(tensor).run();
  } else {
    out << "[]";
    if (tensor.rank() != 1) out << ", shape=" << tensor.shape();
  }
  if (tensor.dtype() != DType::f32) out << ", dtype=" << tensor.dtype();
  if (!tensor.device().is_cpu()) out << ", device=" << tensor.device();
  return out;
}

std::string to_string(const Tensor& tensor) { return concat(tensor); }

}  // namespace polyphase
