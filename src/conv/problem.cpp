#include "conv/problem.hpp"

#include <ostream>

namespace polyphase {

double ConvProblem::operations() const {
  const double weights = static_cast<double>(C_in) * static_cast<double>(channels_out_per_group()) * static_cast<double>(K);
  return 2.0 * static_cast<double>(N) * weights * static_cast<double>(L_in);
}

std::int64_t conv_transpose1d_length(std::int64_t L_in, std::int64_t K, std::int64_t S, std::int64_t P_l, std::int64_t P_r,
                                     std::int64_t OP, std::int64_t D) {
  return (L_in - 1) * S - P_l - P_r + D * (K - 1) + OP + 1;
}

std::ostream& operator<<(std::ostream& out, const ConvProblem& p) {
  return out << "N=" << p.N << " C_in=" << p.C_in << " C_out=" << p.C_out << " L_in=" << p.L_in << " L_out=" << p.L_out
             << " K=" << p.K << " S=" << p.S << " P_l=" << p.P_l << " P_r=" << p.P_r << " OP=" << p.OP << " D=" << p.D
             << " G=" << p.G << ' ' << p.dtype;
}

std::ostream& operator<<(std::ostream& out, ConvDirection direction) {
  switch (direction) {
    case ConvDirection::forward:
      return out << "forward";
    case ConvDirection::dgrad:
      return out << "dgrad";
    case ConvDirection::wgrad:
      break;
  }
  return out << "wgrad";
}

}  // namespace polyphase
