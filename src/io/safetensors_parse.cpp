#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "io/safetensors_header.hpp"
#include "tensor/error.hpp"

namespace polyphase::io {
namespace {

// Dtypes of the format that a Tensor cannot have.
constexpr std::array kUnsupported = {"BOOL",    "U8",      "I8",      "I16",     "U16",     "I32", "U32", "U64",
                                     "F8_E4M3", "F8_E5M2", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4",  "C64"};

// An iterator that records the parser's position, so that semantic errors have an offset too.
struct TrackedPointer {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  const char** reached;

  reference operator*() const { return *at; }
  TrackedPointer& operator++() {
    *reached = ++at;
    return *this;
  }
  bool operator==(const TrackedPointer& other) const { return at == other.at; }
  bool operator!=(const TrackedPointer& other) const { return at != other.at; }
};

// Receives the parser's events and accepts only the form that a header must have. Nothing else is built, so hostile nesting
// costs nothing.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& path, std::string_view text, std::uint64_t data_bytes)
      : path_(path), text_(text), reached_(text.data()), data_bytes_(data_bytes) {}

  SafetensorsHeader read() {
    const char* first = text_.data();
    nlohmann::json::sax_parse(TrackedPointer{first, &reached_}, TrackedPointer{first + text_.size(), &reached_}, this);
    require_full_cover();
    return std::move(header_);
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool number_float(double, const std::string& digits) override { return refuse_number(digits); }
  bool number_integer(std::int64_t value) override { return refuse_number(std::to_string(value)); }
  bool binary(binary_t&) override { return unexpected("binary"); }
  bool number_unsigned(std::uint64_t value) override;
  bool string(std::string& value) override;
  bool start_object(std::size_t) override;
  bool key(std::string& name) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override;

 private:
  enum class Place { before, top, metadata, tensor, shape, offsets, after };

  [[noreturn]] void fail_at(std::size_t offset, const std::string& what) const {
    throw FormatError(concat("load_safetensors: ", path_, ": ", what, " (at byte ", offset, ")"),
                      static_cast<std::int64_t>(offset));
  }
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_at(kLengthBytes + static_cast<std::size_t>(reached_ - text_.data()), concat("header: ", parts...));
  }
  bool unexpected(const std::string& what) const { fail("expected ", expectation(), ", got ", what); }
  bool refuse_number(const std::string& digits) const {
    if (place_ != Place::shape && place_ != Place::offsets) return unexpected(digits);
    fail(tensor(), key_, ": expected whole numbers of at least 0 that fit 63 bits, got ", digits);
  }
  std::string expectation() const;
  std::string tensor() const { return concat("tensor ", in_quotes(entry_.name), ": "); }
  void set_dtype(const std::string& name);
  void finish_tensor();
  std::uint64_t expected_bytes() const;
  void require_full_cover() const;

  const std::string& path_;
  std::string_view text_;
  const char* reached_;
  std::uint64_t data_bytes_;
  SafetensorsHeader header_;
  std::set<std::string> names_;

  Place place_ = Place::before;
  std::string key_;               // of the next value
  std::set<std::string> fields_;  // of the tensor being read
  SafetensorsEntry entry_;
  std::vector<std::uint64_t> offsets_;
};

std::string HeaderReader::expectation() const {
  switch (place_) {
    case Place::before:
      return "an object";
    case Place::top:
      return concat("an object for ", in_quotes(key_));
    case Place::metadata:
      return concat("a string for __metadata__ ", in_quotes(key_));
    case Place::tensor:
      return concat(key_ == "dtype" ? "a string" : "an array", " for ", key_, " of ", in_quotes(entry_.name));
    case Place::shape:
    case Place::offsets:
      return concat("numbers in ", key_, " of ", in_quotes(entry_.name));
    case Place::after:
      break;
  }
  return "nothing more";
}

bool HeaderReader::start_object(std::size_t) {
  if (place_ == Place::before) {
    place_ = Place::top;
  } else if (place_ == Place::top && key_ == "__metadata__") {
    place_ = Place::metadata;
  } else if (place_ == Place::top) {
    place_ = Place::tensor;
    entry_ = {};
    entry_.name = key_;
    fields_.clear();
    offsets_.clear();
  } else {
    unexpected("an object");
  }
  return true;
}

bool HeaderReader::key(std::string& name) {
  key_ = name;
  if (place_ == Place::top) {
    if (!names_.insert(name).second) fail("the name ", in_quotes(name), " appears twice");
  } else if (place_ == Place::metadata) {
    if (header_.metadata.contains(name)) fail("the __metadata__ name ", in_quotes(name), " appears twice");
  } else if (name != "dtype" && name != "shape" && name != "data_offsets") {
    fail(tensor(), "expected the fields dtype, shape and data_offsets, got ", in_quotes(name));
  } else if (!fields_.insert(name).second) {
    fail(tensor(), "the field ", name, " appears twice");
  }
  return true;
}

bool HeaderReader::string(std::string& value) {
  if (place_ == Place::metadata) {
    header_.metadata[key_] = value;
  } else if (place_ == Place::tensor && key_ == "dtype") {
    set_dtype(value);
  } else {
    unexpected("the string " + in_quotes(value));
  }
  return true;
}

void HeaderReader::set_dtype(const std::string& name) {
  if (const std::optional<DType> dtype = dtype_from_format(name)) {
    entry_.dtype = *dtype;
    return;
  }
  const bool is_known = std::find(kUnsupported.begin(), kUnsupported.end(), name) != kUnsupported.end();
  fail(tensor(), is_known ? "the dtype " : "unknown dtype ", is_known ? name : in_quotes(name),
       is_known ? " is not supported" : "", "; supported are F32, F64, F16, BF16 and I64");
}

bool HeaderReader::start_array(std::size_t) {
  if (place_ != Place::tensor || key_ == "dtype") return unexpected("an array");
  place_ = key_ == "shape" ? Place::shape : Place::offsets;
  return true;
}

bool HeaderReader::number_unsigned(std::uint64_t value) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return refuse_number(std::to_string(value));
  if (place_ == Place::shape) {
    if (entry_.shape.rank() == kMaxRank) fail(tensor(), "shape: at most ", kMaxRank, " dimensions are supported, got more");
    entry_.shape.push_back(static_cast<std::int64_t>(value));
  } else if (place_ == Place::offsets) {
    if (offsets_.size() == 2) fail(tensor(), "data_offsets: expected 2 numbers, got more");
    offsets_.push_back(value);
  } else {
    unexpected(std::to_string(value));
  }
  return true;
}

bool HeaderReader::end_array() {
  if (place_ == Place::offsets && offsets_.size() != 2)
    fail(tensor(), "data_offsets: expected 2 numbers, got ", offsets_.size());
  place_ = Place::tensor;
  return true;
}

bool HeaderReader::end_object() {
  if (place_ == Place::tensor) finish_tensor();
  place_ = place_ == Place::top ? Place::after : Place::top;
  return true;
}

bool HeaderReader::parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error ...": only the end is informative.
  std::string reason = error.what();
  for (const char* start : {"] ", "column ", ": "}) {
    const std::size_t found = reason.find(start);
    if (found != std::string::npos) reason.erase(0, found + std::string_view(start).size());
  }
  reason.resize(std::min(reason.find("; last read"), reason.size()));
  fail_at(kLengthBytes + (position > 0 ? position - 1 : 0), "header: not JSON: " + reason);
}

std::uint64_t HeaderReader::expected_bytes() const {
  const auto too_large = [&] { fail(tensor(), "shape ", entry_.shape, " does not fit 63 bits"); };
  // Sizes are below 2^63, so a division detects an overflow of the product.
  std::uint64_t bytes = size_of(entry_.dtype);
  const bool has_zero = std::find(entry_.shape.begin(), entry_.shape.end(), 0) != entry_.shape.end();
  if (has_zero) {
    try {
      static_cast<void>(contiguous_strides(entry_.shape));  // throws if they overflow
    } catch (const ShapeError&) {
      too_large();
    }
    return 0;
  }
  for (const std::int64_t size : entry_.shape) {
    const auto factor = static_cast<std::uint64_t>(size);
    if (bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / factor) too_large();
    bytes *= factor;
  }
  return bytes;
}

void HeaderReader::finish_tensor() {
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    if (!fields_.contains(field)) fail(tensor(), "the field ", field, " is missing");
  }
  entry_.begin = offsets_[0];
  entry_.end = offsets_[1];
  if (entry_.begin > entry_.end) fail(tensor(), "data_offsets: begin ", entry_.begin, " is past end ", entry_.end);
  if (entry_.end > data_bytes_) {
    fail(tensor(), "data_offsets: end ", entry_.end, " is past the data, which has ", data_bytes_, " bytes");
  }
  if (const std::uint64_t bytes = expected_bytes(); bytes != entry_.end - entry_.begin) {
    fail(tensor(), "shape ", entry_.shape, " of ", name_of(entry_.dtype), " needs ", bytes, " bytes, data_offsets give ",
         entry_.end - entry_.begin);
  }
  header_.entries.push_back(std::move(entry_));
}

void HeaderReader::require_full_cover() const {
  std::vector<const SafetensorsEntry*> sorted;
  sorted.reserve(header_.entries.size());
  for (const SafetensorsEntry& entry : header_.entries) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(), [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  const std::uint64_t data_start = kLengthBytes + text_.size();
  std::uint64_t covered = 0;
  for (const SafetensorsEntry* entry : sorted) {
    if (entry->begin < covered) {
      fail_at(data_start + entry->begin, concat("data: tensor ", in_quotes(entry->name), " overlaps the one before it"));
    }
    if (entry->begin > covered) {
      fail_at(data_start + covered,
              concat("data: a hole of ", entry->begin - covered, " bytes before tensor ", in_quotes(entry->name)));
    }
    covered = entry->end;
  }
  if (covered != data_bytes_) {
    fail_at(data_start + covered, concat("data: ", data_bytes_ - covered, " bytes at the end belong to no tensor"));
  }
}

}  // namespace

SafetensorsHeader parse_header(const std::string& path, std::string_view text, std::uint64_t data_bytes) {
  const auto refuse = [&](std::size_t position, const char* what) {
    const std::size_t offset = kLengthBytes + position;
    throw FormatError(concat("load_safetensors: ", path, ": header: ", what, " (at byte ", offset, ")"),
                      static_cast<std::int64_t>(offset));
  };
  if (text.empty() || text.front() != '{') refuse(0, "expected '{' as the first byte");
  // The JSON parser takes a NUL for the end of the text and would ignore what follows.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) refuse(nul, "not JSON: a NUL byte");
  return HeaderReader(path, text, data_bytes).read();
}

}  // namespace polyphase::io
