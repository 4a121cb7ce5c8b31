#pragma once
// The tape: a node per recorded operation, pointing at the nodes and leaves its inputs came from.
//
// An operation of ops/ computes its output and then calls record():
//
//   Tensor square(const Tensor& x) {
//     return autograd::record("square", map(MapOp::square, x), {x}, [x = Saved(x)](const Tensor& g, Needs) {
//       return Gradients{mul(mul(g, x.get()), 2.0)};
//     });
//   }
//
// Backward functions run with recording off, so they may call any differentiable operation at no cost. An output is one tensor;
// an operation with several outputs is several nodes.

#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "../tensor/map_op.hpp"
#include "../tensor/tensor.hpp"

namespace polyphase::autograd {

struct Node;
struct Edge;
struct Onward;
class Turn;

/// What the tape knows of one tensor: shared by the tensor's handles and by the edges that lead to it.
struct Meta {
  bool requires_grad = false;
  std::shared_ptr<Node> node;  ///< the operation that made the tensor; null for a leaf
  Tensor grad;                 ///< leaves only
};

/// Which inputs want a gradient, by position; and what goes on around a backward function, in the pass that calls it.
class Needs {
 public:
  [[nodiscard]] bool operator[](int input) const { return ((bits_ >> input) & 1U) != 0; }
  void set(int input) { bits_ |= std::uint64_t{1} << input; }
  [[nodiscard]] bool any() const { return bits_ != 0; }

  /// Whether the node's Derivative is in the incoming gradient already.
  [[nodiscard]] bool is_differentiated() const;
  /// What the pass would do next to the gradient of the first input. Nothing outside a pass.
  [[nodiscard]] Onward onward() const;
  /// Tells the pass that the first input's gradient, which the backward function will return, has been through those steps of
  /// onward() that are set in `done`: the first, or all.
  void take(const Onward& done) const;

 private:
  friend class Turn;
  std::uint64_t bits_ = 0;
  Turn* turn_ = nullptr;  // of the pass that calls
};

/// One gradient for each input, in order; undefined where not needed. A gradient may be `grad` itself or a view of it, but not
/// a tensor that something else holds: a leaf may keep it without a copy.
using Gradients = std::vector<Tensor>;
using BackwardFunction = std::function<Gradients(const Tensor& grad, Needs needs)>;

/// Where an input came from: an operation, or a leaf, or (both null) nothing that wants a gradient.
struct Edge {
  std::shared_ptr<Node> node;
  std::shared_ptr<Meta> leaf;
  // What a gradient sent along the edge must be like.
  Shape shape;
  DType dtype = DType::f32;
  Device device;
  explicit operator bool() const { return node != nullptr || leaf != nullptr; }
};

/// A tensor kept for the backward pass, off the tape. get() throws AutogradError if it was written in place since.
class Saved {
 public:
  Saved() = default;
  explicit Saved(const Tensor& tensor);
  [[nodiscard]] const Tensor& get() const;
  [[nodiscard]] bool defined() const { return tensor_.defined(); }
  /// Whether get() gives a tensor.
  [[nodiscard]] bool is_there() const { return defined() && tensor_.storage().version() == version_; }

 private:
  Tensor tensor_;
  std::uint64_t version_ = 0;
};

/// The derivative that a node multiplies its gradient by first: that of `activation`, from what derivative_of() takes (the
/// result; of leaky_relu its argument does as well). Whoever computes the only gradient that comes to the node can do that in
/// the pass that writes it.
struct Derivative {
  Activation activation = Activation::none;  ///< relu, leaky_relu or tanh; none: nothing is offered
  double slope = 0;                          ///< of leaky_relu
  Saved result{};
  bool is_all = false;  ///< the node has one input, and its gradient is this product
};

/// The steps of a gradient behind the backward function that computes it, each rounded to its dtype: times `derivative`, then
/// plus `sum`.
struct Onward {
  const Derivative* derivative = nullptr;  ///< null: no such step
  Tensor sum{};                            ///< of the gradients that were there before; undefined: none, or not all are there
};

/// A recorded operation. `backward` is dropped, and with it everything saved, as soon as the backward pass has used it.
struct Node {
  const char* name = "";
  std::uint64_t sequence = 0;  ///< grows with recording: a topological order
  std::vector<Edge> edges;
  Needs needs;
  BackwardFunction backward;
  Derivative derivative;
  std::atomic<std::uint32_t> consumers{0};  ///< edges that were ever made to this node
  bool freed = false;
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  ///< takes deep graphs apart without recursion
};

/// Whether the tensor is defined and follows gradients.
[[nodiscard]] bool follows_gradients(const Tensor& tensor);
/// Saved(tensor) if `condition`, else nothing: keeps no memory for a gradient that nobody asks for.
[[nodiscard]] inline Saved save_if(bool condition, const Tensor& tensor) { return condition ? Saved(tensor) : Saved(); }

/// True if recording is on and any of these follows gradients; undefined tensors do not.
[[nodiscard]] bool should_record(std::span<const Tensor> inputs);

/// Returns `output`, on the tape if should_record(inputs). `output` must be freshly made (its own handle). At most 64 inputs.
/// A `backward` recorded with a derivative looks at Needs::is_differentiated().
Tensor record(const char* name, Tensor output, std::span<const Tensor> inputs, BackwardFunction backward,
              Derivative derivative = {});
inline Tensor record(const char* name, Tensor output, std::initializer_list<Tensor> inputs, BackwardFunction backward,
                     Derivative derivative = {}) {
  return record(name, std::move(output), std::span<const Tensor>(inputs.begin(), inputs.size()), std::move(backward),
                std::move(derivative));
}

}  // namespace polyphase::autograd
