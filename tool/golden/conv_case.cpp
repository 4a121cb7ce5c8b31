#include "golden/conv_case.hpp"

#include <array>

#include <nlohmann/json.hpp>

namespace polyphase::golden {
namespace {

using Json = nlohmann::json;

class CaseReader {
 public:
  CaseReader(const File& file, std::string name) : file_(file), name_(std::move(name)) {}

  ConvCase read() {
    const Json json = Json::parse(file_.metadata(name_), nullptr, false);
    if (!json.is_object() || !json.contains("op")) fail("expected a JSON object with op, got " + file_.metadata(name_));
    item_.name = name_;
    for (const auto& [key, value] : json.items()) set(key, value);
    set_problem();
    return item_;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { file_.fail("case " + name_ + ": " + what); }

  // Frameworks write a size as 2 or as [2].
  std::int64_t number(const std::string& key, const Json& value) const {
    const Json& scalar = value.is_array() && value.size() == 1 ? value[0] : value;
    if (!scalar.is_number_integer()) fail("expected a whole number for " + key + ", got " + value.dump());
    return scalar.get<std::int64_t>();
  }

  void set(const std::string& key, const Json& value) {
    if (key == "op") {
      item_.is_transpose = value == "conv_transpose1d";
      if (!item_.is_transpose && value != "conv1d") fail("expected op conv_transpose1d or conv1d, got " + value.dump());
    } else if (key == "padding") {
      const bool has_two = value.is_array() && value.size() == 2;
      item_.padding_left = number(key, has_two ? value[0] : value);
      item_.padding_right = has_two ? number(key, value[1]) : item_.padding_left;
    } else if (key == "stride") {
      item_.stride = number(key, value);
    } else if (key == "dilation") {
      item_.dilation = number(key, value);
    } else if (key == "groups") {
      item_.groups = number(key, value);
    } else if (key == "output_padding") {
      item_.output_padding = number(key, value);
    } else {
      fail("unknown setting " + key);
    }
  }

  Shape batched(const char* tensor) const {
    Shape shape = file_.tensor(name_ + "/" + tensor).shape();
    if (shape.rank() == 2) shape.insert(0, 1);
    if (shape.rank() != 3) fail(concat("expected ", tensor, " (N, C, L) or (C, L), got ", shape));
    return shape;
  }

  void set_problem() {
    const Shape x = batched("x");
    const Shape y = batched("y");
    const Shape& w = file_.tensor(name_ + "/weight").shape();
    if (w.rank() != 3 || item_.groups < 1 || item_.stride < 1 || item_.dilation < 1 || x[1] % item_.groups != 0) {
      fail(concat("x ", x, ", weight ", w, ", groups ", item_.groups, ", stride ", item_.stride, ", dilation ", item_.dilation,
                  " do not go together"));
    }
    const Shape& low = item_.is_transpose ? x : y;
    const Shape& high = item_.is_transpose ? y : x;
    item_.problem = {.N = x[0],
                     .C_in = low[1],
                     .C_out = high[1],
                     .L_in = low[2],
                     .L_out = high[2],
                     .K = w[2],
                     .S = item_.stride,
                     .P_l = item_.padding_left,
                     .P_r = item_.padding_right,
                     .OP = item_.output_padding,
                     .D = item_.dilation,
                     .G = item_.groups,
                     .dtype = DType::f64};
    const ConvProblem& p = item_.problem;
    if (y[0] != x[0] || w != Shape{p.C_in, p.C_out / p.G, p.K} || p.C_out % p.G != 0 || p.C_in % p.G != 0) {
      fail(concat("x ", x, ", weight ", w, ", y ", y, " and groups ", p.G, " do not go together"));
    }
  }

  const File& file_;
  std::string name_;
  ConvCase item_;
};

std::string sizes(const Shape& shape) {
  std::string text = "(";
  for (int dim = 0; dim < shape.rank(); ++dim) text += (dim == 0 ? "" : ",") + std::to_string(shape[dim]);
  return text + ")";
}

}  // namespace

ConvCase read_conv_case(const File& file, const std::string& name) { return CaseReader(file, name).read(); }

std::string describe(const ConvCase& item, const Shape& x, const Shape& weight) {
  struct Setting {
    const char* name;
    std::int64_t value, standard;
  };
  std::string text = concat(item.is_transpose ? "conv_transpose1d " : "conv1d ", sizes(x), " x ", sizes(weight));
  const std::int64_t right_standard = item.padding_left;
  for (const Setting& s : std::array{Setting{"S", item.stride, 1}, Setting{"P", item.padding_left, 0},
                                     Setting{"P_r", item.padding_right, right_standard}, Setting{"OP", item.output_padding, 0},
                                     Setting{"D", item.dilation, 1}, Setting{"G", item.groups, 1}}) {
    if (s.value != s.standard) text += concat(" ", s.name, "=", s.value);
  }
  return text;
}

}  // namespace polyphase::golden
