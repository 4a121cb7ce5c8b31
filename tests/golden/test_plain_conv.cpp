#include "golden/plain_conv.hpp"

#include <doctest/doctest.h>

#include "tensor/random.hpp"

using namespace polyphase;
using namespace polyphase::golden;

namespace {

// Small integers: every sum is exact.
std::vector<double> integers(std::int64_t count, Generator& generator) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(generator.integer(5) - 2));
  return values;
}

// One pass over the definition: calls visit(x index, w index, y index) for every product.
template <class Function>
void for_each_product(const ConvProblem& p, const Function& visit) {
  const std::int64_t width = p.C_out / p.G;
  for (std::int64_t n = 0; n < p.N; ++n) {
    for (std::int64_t ci = 0; ci < p.C_in; ++ci) {
      for (std::int64_t co = 0; co < p.C_out; ++co) {
        if (ci / (p.C_in / p.G) != co / width) continue;
        for (std::int64_t t = 0; t < p.L_out; ++t) {
          for (std::int64_t k = 0; k < p.K; ++k) {
            const std::int64_t place = t + p.P_l - k * p.D;
            if (place < 0 || place % p.S != 0 || place / p.S >= p.L_in) continue;
            visit(static_cast<std::size_t>((n * p.C_in + ci) * p.L_in + place / p.S),
                  static_cast<std::size_t>((ci * width + co % width) * p.K + k),
                  static_cast<std::size_t>((n * p.C_out + co) * p.L_out + t));
          }
        }
      }
    }
  }
}

void check(ConvProblem p) {
  p.L_out = (p.L_in - 1) * p.S - p.P_l - p.P_r + p.D * (p.K - 1) + p.OP + 1;
  REQUIRE(p.L_out > 0);
  Generator generator(1);
  const std::vector<double> x = integers(p.N * p.C_in * p.L_in, generator);
  const std::vector<double> w = integers(p.C_in * (p.C_out / p.G) * p.K, generator);
  const std::vector<double> g = integers(p.N * p.C_out * p.L_out, generator);
  const std::vector<double> b = integers(p.C_out, generator);
  std::vector<double> y(g.size()), dx(x.size()), dw(w.size()), db(b.size());
  for_each_product(p, [&](std::size_t i, std::size_t j, std::size_t t) {
    y[t] += x[i] * w[j];
    dx[i] += g[t] * w[j];
    dw[j] += x[i] * g[t];
  });
  for (std::size_t t = 0; t < y.size(); ++t) {
    const std::size_t channel = t / static_cast<std::size_t>(p.L_out) % b.size();
    y[t] += b[channel];
    db[channel] += g[t];
  }
  const PlainConv<double> plain(p);
  CHECK(plain.forward(x, w, b) == y);
  CHECK(plain.dgrad(g, w, {}) == dx);
  CHECK(plain.wgrad(x, g) == dw);
  CHECK(PlainConv<double>::bias_grad(g, p.N, p.C_out, p.L_out) == db);
}

}  // namespace

TEST_CASE("the plain sums are the definition's") {
  check({.N = 2, .C_in = 3, .C_out = 2, .L_in = 7, .K = 3});
  check({.N = 2, .C_in = 3, .C_out = 2, .L_in = 7, .K = 4, .S = 2, .P_l = 1, .P_r = 1});
  check({.N = 1, .C_in = 4, .C_out = 6, .L_in = 5, .K = 3, .S = 3, .P_l = 2, .P_r = 0, .OP = 2, .D = 2, .G = 2});
  check({.N = 1, .C_in = 4, .C_out = 4, .L_in = 5, .K = 2, .S = 5, .P_l = 4, .P_r = 3, .OP = 4, .G = 4});
  check({.N = 1, .C_in = 1, .C_out = 1, .L_in = 1, .K = 1});
  check({.N = 1, .C_in = 2, .C_out = 2, .L_in = 9, .K = 5, .S = 1, .P_l = 6, .P_r = 1, .D = 3});
}
