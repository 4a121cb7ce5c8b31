#pragma once
// One operation over the ring: what a rank sends to the next, what it receives from the one before, and how they depend.
// Internal.

#include <cstdint>
#include <vector>

#include "distributed/failure.hpp"
#include "distributed/network/socket.hpp"
#include "tensor/dtype.hpp"

namespace polyphase::distributed {

/// A part of a tensor.
struct Piece {
  char* data = nullptr;
  std::size_t bytes = 0;
  bool adds = false;    ///< received elements are added to it instead of replacing it
  bool scales = false;  ///< and then multiplied by RingTransfer::scale
};

/// `sends` are the bytes to the next rank, in order. The first `ready` of them can be sent immediately; byte ready + i is final
/// when i bytes of `receives` have been processed.
struct RingTransfer {
  std::vector<Piece> sends{};
  std::vector<Piece> receives{};
  std::size_t ready = 0;
  DType dtype = DType::f32;
  double scale = 1;
};

/// Segment i of `world` of `count` elements: a share of the elements that differs by at most one.
[[nodiscard]] std::int64_t segment_begin(std::int64_t count, int world, int i);

/// In place on `data` of `count` elements. Segment s is summed from rank s + 1 on around the ring to s, which owns it: the bits
/// of a sum do not depend on the rank that reads it.
[[nodiscard]] RingTransfer reduce_scatter_transfer(char* data, std::int64_t count, DType dtype, int rank, int world,
                                                   double scale);
[[nodiscard]] RingTransfer all_gather_transfer(char* data, std::int64_t count, DType dtype, int rank, int world);
/// The two, one after the other, without waiting between them.
[[nodiscard]] RingTransfer all_reduce_transfer(char* data, std::int64_t count, DType dtype, int rank, int world, double scale);
[[nodiscard]] RingTransfer broadcast_transfer(char* data, std::int64_t count, DType dtype, int rank, int world, int root);

/// Sends and receives until all is done, in both directions together. Throws DistributedError if a connection breaks or
/// `failure` is set meanwhile. `scratch` is memory of the caller, kept from one transfer to the next.
void run(const RingTransfer& transfer, const Socket& next, const Socket& previous, const Failure& failure,
         std::vector<char>& scratch);

}  // namespace polyphase::distributed
