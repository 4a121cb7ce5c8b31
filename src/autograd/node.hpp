#pragma once
// The tape: a node per recorded operation, with edges to the nodes and leaves that its inputs came from.
//
// An operation of ops/ computes its output and then calls record():
//
//   Tensor square(const Tensor& x) {
//     return autograd::record("square", map(MapOp::square, x), {x}, [x = Saved(x)](const Tensor& g, Needs) {
//       return Gradients{mul(mul(g, x.get()), 2.0)};
//     });
//   }
//
// Backward functions run with recording off, so they may call any differentiable operation at no cost. An operation has one
// output; an operation with several outputs consists of several nodes.

#include <atomic>
#include <cstddef>
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

/// Receives gradients of leaves during a backward pass, each as soon as nothing can be added to it. Called on the pass's thread
/// with recording off. An exception ends the pass. Set by observe_leaf() of autograd/engine.hpp.
class LeafObserver {
 public:
  LeafObserver() = default;
  LeafObserver(const LeafObserver&) = delete;
  LeafObserver& operator=(const LeafObserver&) = delete;
  virtual ~LeafObserver() = default;
  /// `gradient` is the pass's whole gradient of the leaf that was given this number, `before` the leaf's grad() (may be
  /// undefined). The result becomes the leaf's gradient when the pass ends.
  virtual Tensor finish_leaf(std::size_t number, const Tensor& before, const Tensor& gradient) = 0;
  /// Called once at the end of a pass that called finish_leaf(), before leaves get their gradients.
  virtual void end_pass() = 0;
};

/// The tape's data of one tensor, shared by the tensor's handles and by the edges that lead to it.
struct Meta {
  bool requires_grad = false;
  std::shared_ptr<Node> node;        ///< the operation that made the tensor; null for a leaf
  Tensor grad;                       ///< leaves only
  LeafObserver* observer = nullptr;  ///< leaves only
  std::size_t number = 0;            ///< of the leaf at its observer
};

/// Gradients of parameters that one pass over memory computes for many nodes.
class SharedWork {
 public:
  SharedWork() = default;
  SharedWork(const SharedWork&) = delete;
  SharedWork& operator=(const SharedWork&) = delete;
  virtual ~SharedWork() = default;
  /// What run() reads and writes.
  [[nodiscard]] virtual std::vector<Tensor> tensors() const = 0;
  virtual void run() = 0;
};

/// Which inputs need a gradient, by position; and the state of the pass that calls the backward function.
class Needs {
 public:
  [[nodiscard]] bool operator[](int input) const { return ((bits_ >> input) & 1U) != 0; }
  void set(int input) { bits_ |= std::uint64_t{1} << input; }
  [[nodiscard]] bool any() const { return bits_ != 0; }

  /// Whether the incoming gradient is already multiplied by the node's Derivative.
  [[nodiscard]] bool is_differentiated() const;
  /// The steps that the pass would apply next to the gradient of the first input. None outside a pass.
  [[nodiscard]] Onward onward() const;
  /// Tells the pass that the backward function will apply the steps of onward() that are set in `done` to the first input's
  /// gradient: the first, or all.
  void take(const Onward& done) const;
  /// Lets `work` compute the gradients of `inputs` next to what the pass issues afterwards, if a graph is being recorded. For
  /// gradients that only the end of the pass waits for, as those of parameters. `uses` are the tensors that `work` reads.
  void aside(std::initializer_list<int> inputs, std::vector<Tensor> uses, const std::function<void()>& work) const;
  /// The work that the pass does for all nodes with the same `make`, which makes it. It runs once, before anything reads the
  /// gradients that the backward function returns without having written them. Null if they cannot wait, because they do not
  /// all go to leaves without a gradient of this pass, or because leaves are observed.
  [[nodiscard]] SharedWork* shared(std::unique_ptr<SharedWork> (*make)()) const;

 private:
  friend class Turn;
  std::uint64_t bits_ = 0;
  Turn* turn_ = nullptr;  // of the calling pass
};

/// One gradient per input, in order; undefined if not needed. A gradient may be `grad` itself or a view of it, but not a tensor
/// with another owner: a leaf may keep it without a copy.
using Gradients = std::vector<Tensor>;
using BackwardFunction = std::function<Gradients(const Tensor& grad, Needs needs)>;

/// The source of an input: an operation, or a leaf, or (both null) none that needs a gradient.
struct Edge {
  std::shared_ptr<Node> node;
  std::shared_ptr<Meta> leaf;
  // The required properties of a gradient sent along the edge.
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
  /// Whether get() returns a tensor.
  [[nodiscard]] bool is_there() const { return defined() && tensor_.storage().version() == version_; }

 private:
  Tensor tensor_;
  std::uint64_t version_ = 0;
};

/// The derivative that a node first multiplies its gradient by: that of `activation`, computed by derivative_of() from the
/// result (for leaky_relu also from the argument). The operation that computes the node's only gradient can apply it in the
/// pass that writes it.
struct Derivative {
  Activation activation = Activation::none;  ///< relu, leaky_relu or tanh; none: no derivative
  double slope = 0;                          ///< for leaky_relu
  Saved result{};
  bool is_all = false;  ///< the node has one input, and its gradient is this product
};

/// The steps that follow a backward function's gradient, each rounded to its dtype: times `derivative`, then plus `sum`.
struct Onward {
  const Derivative* derivative = nullptr;  ///< null: no such step
  Tensor sum{};                            ///< sum of the earlier gradients; undefined: there are none, or not all have arrived
};

/// A recorded operation. `backward` and everything it saved is destroyed as soon as the backward pass has used it.
struct Node {
  const char* name = "";
  std::uint64_t sequence = 0;  ///< increases with recording: a topological order
  std::vector<Edge> edges;
  Needs needs;
  BackwardFunction backward;
  Derivative derivative;
  std::atomic<std::uint32_t> consumers{0};  ///< number of edges made to this node in total
  bool freed = false;
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  ///< destroys deep graphs without recursion
};

/// Whether the tensor is defined and requires gradients.
[[nodiscard]] bool follows_gradients(const Tensor& tensor);
/// Saved(tensor) if `condition`, else nothing: keeps no memory for a gradient that is not needed.
[[nodiscard]] inline Saved save_if(bool condition, const Tensor& tensor) { return condition ? Saved(tensor) : Saved(); }

/// Whether recording is on and any of these requires gradients; undefined tensors do not.
[[nodiscard]] bool should_record(std::span<const Tensor> inputs);

/// Returns `output`, on the tape if should_record(inputs). `output` must be a new tensor (its own handle). At most 64 inputs. A
/// `backward` recorded with a derivative must check Needs::is_differentiated().
Tensor record(const char* name, Tensor output, std::span<const Tensor> inputs, BackwardFunction backward,
              Derivative derivative = {});
inline Tensor record(const char* name, Tensor output, std::initializer_list<Tensor> inputs, BackwardFunction backward,
                     Derivative derivative = {}) {
  return record(name, std::move(output), std::span<const Tensor>(inputs.begin(), inputs.size()), std::move(backward),
                std::move(derivative));
}

}  // namespace polyphase::autograd
