#include "autograd/engine.hpp"

#include <algorithm>
#include <mutex>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "cuda/cuda.hpp"
#include "ops/elementwise.hpp"
#include "tensor/backend.hpp"

namespace polyphase::autograd {

namespace {

struct RunsLater {
  bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const { return a->sequence < b->sequence; }
};

void accumulate(Tensor& sum, const Tensor& gradient) { sum = sum.defined() ? add(sum, gradient) : gradient; }

// A gradient of the leaf's own: contiguous, filling its storage, shared with nobody in `taken` (which it joins).
Tensor own(const Tensor& gradient, std::unordered_set<const void*>& taken) {
  const bool fills = gradient.is_contiguous() &&
                     gradient.storage().bytes() == static_cast<std::size_t>(gradient.numel()) * size_of(gradient.dtype());
  if (fills && (gradient.numel() == 0 || taken.insert(gradient.storage().data()).second)) return gradient;
  return gradient.clone();
}

class BackwardPass {
 public:
  explicit BackwardPass(bool retain_graph) : retain_graph_(retain_graph) {}

  void send(const Edge& edge, const Tensor& gradient) {
    if (edge.node) {
      Tensor& sum = gradients_[edge.node.get()];
      if (!sum.defined()) ready_.push(edge.node);
      accumulate(sum, gradient);
    } else {
      const auto [place, is_new] = leaf_index_.try_emplace(edge.leaf.get(), leaves_.size());
      if (is_new) leaves_.emplace_back(edge.leaf, Tensor());
      accumulate(leaves_[place->second].second, gradient);
    }
  }

  void run() {
    // Descending sequence is reverse topological order: when a node comes up, all gradients it will ever get are in.
    while (!ready_.empty()) {
      const std::shared_ptr<Node> node = ready_.top();
      ready_.pop();
      const auto found = gradients_.find(node.get());
      const Tensor gradient = std::move(found->second);
      gradients_.erase(found);
      run_node(*node, gradient);
    }
  }

  // `root_gradient` is the caller's tensor, or one that all passes share, so no leaf may keep it as its own.
  void store_leaves(const Tensor& root_gradient) {
    std::unordered_set<const void*> taken{root_gradient.storage().data()};
    for (auto& [leaf, gradient] : leaves_)
      gradient = leaf->grad.defined() ? add(leaf->grad, gradient).contiguous() : own(gradient, taken);
    for (auto& [leaf, gradient] : leaves_) leaf->grad = std::move(gradient);
  }

 private:
  void run_node(Node& node, const Tensor& gradient) {
    require<AutogradError>(!node.freed, "backward: the graph of ", node.name,
                           " was freed by an earlier backward pass; pass retain_graph = true to keep it");
    const Gradients results = call(node, gradient);
    require<AutogradError>(results.size() == node.edges.size(), "backward of ", node.name, ": expected ", node.edges.size(),
                           " gradients, got ", results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Edge& edge = node.edges[i];
      if (!edge || !results[i].defined()) continue;
      check(node, edge, results[i], i);
      send(edge, results[i]);
    }
    if (!retain_graph_) node.edges.clear();
  }

  Gradients call(Node& node, const Tensor& gradient) const {
    try {
      if (retain_graph_) return node.backward(gradient, node.needs);
      const BackwardFunction backward = std::exchange(node.backward, nullptr);  // and what it saved goes with it
      node.freed = true;
      return backward(gradient, node.needs);
    } catch (const AutogradError& error) {
      throw AutogradError(concat(node.name, ": ", error.what()));
    }
  }

  static void check(const Node& node, const Edge& edge, const Tensor& gradient, std::size_t input) {
    require<AutogradError>(gradient.shape() == edge.shape && gradient.dtype() == edge.dtype && gradient.device() == edge.device,
                           "backward of ", node.name, ": expected a gradient ", edge.shape, " ", edge.dtype, " on ",
                           edge.device, " for input ", input, ", got ", gradient.shape(), " ", gradient.dtype(), " on ",
                           gradient.device());
  }

  bool retain_graph_;
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, RunsLater> ready_;
  std::unordered_map<const Node*, Tensor> gradients_;
  std::vector<std::pair<std::shared_ptr<Meta>, Tensor>> leaves_;  // in order of arrival
  std::unordered_map<const Meta*, std::size_t> leaf_index_;
};

// A one of root's shape, dtype and device: made once for each and shared, so never written to. A recorded pass uses one that
// was there before, or its own.
Tensor shared_one(const Tensor& root) {
  struct One {
    DType dtype;
    Device device;
    Tensor value;
  };
  static std::mutex mutex;
  static auto* const ones = new std::vector<One>;  // never destroyed: a device may be gone before
  const std::lock_guard lock(mutex);
  const auto known = std::find_if(ones->begin(), ones->end(),
                                  [&](const One& one) { return one.dtype == root.dtype() && one.device == root.device(); });
  if (known != ones->end()) return known->value.reshape(root.shape());
  Tensor one = Tensor::ones_like(root);
  if (root.device().is_cuda() && cuda::capturing()) return one;
  backend_of(root.device()).synchronize();  // once: threads may use it on streams of their own from now on
  ones->push_back({root.dtype(), root.device(), one.reshape({})});
  return one;
}

Tensor root_gradient(const Tensor& root, const Tensor& gradient) {
  require<AutogradError>(follows_gradients(root), "backward: expected a tensor that requires grad, got one that does not");
  if (!gradient.defined()) {
    require<ShapeError>(root.numel() == 1, "backward: expected a single element or a gradient ", root.shape(), ", got none");
    return shared_one(root);
  }
  require<ShapeError>(gradient.shape() == root.shape(), "backward: expected gradient ", root.shape(), ", got ",
                      gradient.shape());
  require<DTypeError>(gradient.dtype() == root.dtype(), "backward: expected gradient of ", root.dtype(), ", got ",
                      gradient.dtype());
  require<DeviceError>(gradient.device() == root.device(), "backward: expected gradient on ", root.device(), ", got ",
                       gradient.device());
  return gradient.detach();
}

}  // namespace

void run_backward(const Tensor& root, const Tensor& gradient, bool retain_graph) {
  const GradModeGuard no_recording(false);
  const AutocastGuard no_casting(std::nullopt);  // dtypes are those of the forward pass
  const Tensor start = root_gradient(root, gradient);
  BackwardPass pass(retain_graph);
  const std::shared_ptr<Meta>& meta = TensorAccess::meta(root);
  Edge edge;
  if (meta->node) {
    edge.node = meta->node;
  } else {
    edge.leaf = meta;
  }
  pass.send(edge, start);
  pass.run();
  pass.store_leaves(start);
}

}  // namespace polyphase::autograd
