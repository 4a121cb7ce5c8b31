#pragma once
// The backward pass.

#include "../autograd/node.hpp"

namespace polyphase::autograd {

/// Runs the tape backwards from `root` with `gradient` (root's shape; undefined means 1 for a single element). Nodes run in
/// reverse order of recording, each once, on the calling thread; gradients are added in a fixed order. Unless `retain_graph`,
/// each node's saved tensors are freed as soon as it has run. Leaves accumulate at the end of the pass, so an error leaves
/// every leaf's gradient unchanged (but the part of the graph that ran may be freed). A leaf that was frozen meanwhile gets
/// nothing. Threads may run graphs with common leaves. Throws AutogradError if the graph was freed before or root does not
/// require gradients, ShapeError, DTypeError or DeviceError if `gradient` does not fit, and the errors of the backward
/// functions.
///
/// Leaves with an observer get the gradients that it returns. It is called while the pass runs, so after an error it may have
/// been called for some of them.
void run_backward(const Tensor& root, const Tensor& gradient, bool retain_graph);

/// Has `observer` called in backward passes with `number` and the gradient of `leaf`; null: no longer. A pass with an observed
/// leaf in the program first counts the edges of its graph; without one, passes are as they were. Throws AutogradError unless
/// `leaf` is a leaf that requires gradients, or if it has another observer.
void observe_leaf(const Tensor& leaf, LeafObserver* observer, std::size_t number = 0);
/// Whether a leaf has an observer.
[[nodiscard]] bool is_observed(const Tensor& leaf);

}  // namespace polyphase::autograd
