// Algorithm::direct: dispatches on the dtype.
#include "cuda/conv/direct/direct.hpp"

#include "cuda/conv/element.cuh"

namespace polyphase::cuda::direct {

// Defined in <dtype>.cu, once per dtype.
template <class T>
void gather_as(const ConvProblem& problem, ConvDirection direction, const T* source, const T* w, const T* bias, T* out,
               const Epilogue& epilogue, int device, cudaStream_t stream, int tile, int slices);

void gather(const ConvProblem& problem, ConvDirection direction, const void* source, const void* w, const void* bias, void* out,
            const Epilogue& epilogue, int device, cudaStream_t stream, int tile, int slices) {
  const bool is_forward = direction == ConvDirection::forward;
  if (problem.N == 0 || (is_forward ? problem.L_out : problem.L_in) == 0) return;
  with_element(problem, direction, [&]<class T>(T* result) {
    result = static_cast<T*>(out);
    gather_as<T>(problem, direction, static_cast<const T*>(source), static_cast<const T*>(w), static_cast<const T*>(bias),
                 result, epilogue, device, stream, tile, slices);
  });
}

}  // namespace polyphase::cuda::direct
