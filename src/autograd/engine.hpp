#pragma once
// The backward pass.

#include "../autograd/node.hpp"

namespace polyphase::autograd {

/// Runs the tape backwards from `root` with `gradient` (root's shape; undefined means 1 for a single element).
/// Nodes run in reverse order of recording, each once, on the calling thread; gradients meet in a fixed order.
/// Unless `retain_graph`, each node's saved tensors are freed as soon as it has run. Leaves accumulate at the end of the pass,
/// so that an error leaves every leaf's gradient as it was (the part of the graph that ran before it may be freed all the
/// same); one that was frozen meanwhile gets nothing. Threads may run graphs that have leaves in common. Throws AutogradError
/// when the graph was freed before or root follows no gradients, ShapeError, DTypeError or DeviceError when `gradient` does not
/// fit, and whatever a backward function throws.
void run_backward(const Tensor& root, const Tensor& gradient, bool retain_graph);

}  // namespace polyphase::autograd
