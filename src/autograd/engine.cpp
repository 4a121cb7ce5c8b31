#include "autograd/engine.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "autograd/aside.hpp"
#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "cuda/cuda.hpp"
#include "device/backend.hpp"

namespace polyphase::autograd {

namespace {

struct RunsLater {
  bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const { return a->sequence < b->sequence; }
};

/// The sum of two gradients of one tensor, off the tape.
Tensor sum_of(const Tensor& a, const Tensor& b) {
  const Tensor sum = Tensor::empty_like(a);
  if (sum.numel() > 0) backend_of(a.device()).map(MapOp::add, sum, std::array{a, b}, {});
  return sum;
}

void accumulate(Tensor& sum, const Tensor& gradient) { sum = sum.defined() ? sum_of(sum, gradient) : gradient; }

// A gradient that the leaf owns: contiguous, filling its storage, shared with none in `taken` (to which it is added).
Tensor own(const Tensor& gradient, std::unordered_set<const void*>& taken) {
  const bool fills = gradient.is_contiguous() &&
                     gradient.storage().bytes() == static_cast<std::size_t>(gradient.numel()) * size_of(gradient.dtype());
  if (fills && (gradient.numel() == 0 || taken.insert(gradient.storage().data()).second)) return gradient;
  return gradient.clone();
}

// A gradient that waits for its node.
struct Arrived {
  Tensor sum;
  bool is_differentiated = false;  // already multiplied by the node's derivative
  bool is_aside = false;           // computed aside, so the node runs there
};

// A leaf that the pass has reached.
struct Reached {
  std::shared_ptr<Meta> leaf;
  Tensor gradient{};
  bool is_finished = false;  // `gradient` came from the leaf's observer
  bool is_aside = false;
};

std::atomic<std::int64_t> observed_leaves{0};

class BackwardPass;

}  // namespace

// The state of one node during a pass, as its backward function sees it.
class Turn {
 public:
  Turn(BackwardPass& pass, const Node& node, const Arrived& arrived)
      : pass_(pass), node_(node), is_differentiated_(arrived.is_differentiated), is_aside_(arrived.is_aside) {}
  [[nodiscard]] Needs needs() {
    Needs needs = node_.needs;
    needs.turn_ = this;
    return needs;
  }
  [[nodiscard]] bool is_differentiated() const { return is_differentiated_; }
  [[nodiscard]] Onward onward() const;
  void take(const Onward& done) { done_ = done; }
  [[nodiscard]] const Onward& done() const { return done_; }
  void aside(std::initializer_list<int> inputs, std::vector<Tensor> uses, const std::function<void()>& work);
  [[nodiscard]] SharedWork* shared(std::unique_ptr<SharedWork> (*make)());
  [[nodiscard]] bool is_aside(std::size_t input) const { return is_aside_ || ((inputs_aside_ >> input) & 1U) != 0; }

 private:
  BackwardPass& pass_;
  const Node& node_;
  bool is_differentiated_, is_aside_;
  std::uint64_t inputs_aside_ = 0;
  Onward done_;
};

bool Needs::is_differentiated() const { return turn_ != nullptr && turn_->is_differentiated(); }
Onward Needs::onward() const { return turn_ != nullptr ? turn_->onward() : Onward{}; }
void Needs::take(const Onward& done) const {
  if (turn_ != nullptr) turn_->take(done);
}
void Needs::aside(std::initializer_list<int> inputs, std::vector<Tensor> uses, const std::function<void()>& work) const {
  turn_ != nullptr ? turn_->aside(inputs, std::move(uses), work) : work();
}

SharedWork* Needs::shared(std::unique_ptr<SharedWork> (*make)()) const {
  return turn_ != nullptr ? turn_->shared(make) : nullptr;
}

namespace {

class BackwardPass {
 public:
  BackwardPass(bool retain_graph, Device device) : retain_graph_(retain_graph), device_(device) {}

  void send(const Edge& edge, const Tensor& gradient, bool is_aside = false) {
    if (edge.node) {
      Arrived& arrived = gradients_[edge.node.get()];
      if (!arrived.sum.defined()) ready_.push(edge.node);
      add(arrived.sum, arrived.is_aside, gradient, is_aside);
    } else {
      const auto [place, is_new] = leaf_index_.try_emplace(edge.leaf.get(), leaves_.size());
      if (is_new)
        leaves_.push_back({edge.leaf});
      else
        finish_shared();
      Reached& reached = leaves_[place->second];
      add(reached.gradient, reached.is_aside, gradient, is_aside);
    }
  }

  // Counts the edges to observed leaves, so that the pass knows when a leaf's gradient is whole.
  void count_edges(const Edge& root) {
    is_counting_ = true;
    std::vector<const Node*> open;
    std::unordered_set<const Node*> seen;
    const auto count = [&](const Edge& edge) {
      if (edge.leaf && edge.leaf->observer != nullptr) ++awaited_[edge.leaf.get()];
      if (edge.node && seen.insert(edge.node.get()).second) open.push_back(edge.node.get());
    };
    count(root);
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      for (const Edge& edge : node->edges) count(edge);
    }
  }

  // The edge has been followed: nothing more comes along it.
  void followed(const Edge& edge) {
    if (!is_counting_ || !edge.leaf) return;
    const auto found = awaited_.find(edge.leaf.get());
    if (found == awaited_.end() || --found->second > 0) return;
    const auto place = leaf_index_.find(edge.leaf.get());
    if (place != leaf_index_.end()) finish(leaves_[place->second]);
  }

  void run() {
    if (!is_counting_) aside_.emplace(device_);  // observers take gradients on the current stream
    // Descending sequence is reverse topological order: when a node runs, all of its gradients have arrived.
    while (!ready_.empty()) {
      const std::shared_ptr<Node> node = ready_.top();
      ready_.pop();
      const auto found = gradients_.find(node.get());
      Arrived arrived = std::move(found->second);
      gradients_.erase(found);
      run_node(*node, arrived);
      if (arrived.is_aside) aside_->run([&] { arrived.sum = {}; });  // released where it was made
    }
    finish_shared();
    if (aside_) aside_->join();
  }

  // SharedWork of this pass for a node; null if the node's gradients cannot wait for it.
  [[nodiscard]] SharedWork* shared(const Node& node, std::unique_ptr<SharedWork> (*make)()) {
    const auto can_wait = [&](const Edge& edge) { return !edge.node && !leaf_index_.contains(edge.leaf.get()); };
    if (is_counting_ || !std::all_of(node.edges.begin(), node.edges.end(), can_wait)) return nullptr;
    const auto known = std::find_if(shared_.begin(), shared_.end(), [&](const auto& one) { return one.first == make; });
    return known != shared_.end() ? known->second.get() : shared_.emplace_back(make, make()).second.get();
  }
  [[nodiscard]] bool has_aside() const { return aside_ && aside_->exists(); }

  // Whether a node's work has gone aside.
  [[nodiscard]] bool begin_aside(std::vector<Tensor> uses, const std::function<void()>& work) {
    if (!has_aside()) return false;
    aside_->begin(std::move(uses), work);
    return true;
  }

  // The steps that follow the gradient of the current node's first input.
  [[nodiscard]] Onward onward(const Node& node) const {
    const Edge& edge = node.edges.front();
    if (!edge) return {};
    if (!offers(edge)) return {nullptr, sum_at(edge)};
    return {&edge.node->derivative, passes(node) ? sum_at(edge.node->edges.front()) : Tensor()};
  }

  // `root_gradient` is the caller's tensor, or one shared by all passes, so no leaf may keep it.
  void store_leaves(const Tensor& root_gradient) {
    static std::mutex mutex;  // passes of several threads may end at the same leaves
    end_observed();
    const std::lock_guard lock(mutex);
    std::erase_if(leaves_, [](const Reached& reached) { return !reached.leaf->requires_grad; });
    std::unordered_set<const void*> taken{root_gradient.storage().data()};
    for (auto& [leaf, gradient, is_finished, is_aside] : leaves_) {
      if (is_finished) continue;
      gradient = leaf->grad.defined() ? sum_of(leaf->grad, gradient) : own(gradient, taken);
    }
    for (Reached& reached : leaves_) reached.leaf->grad = std::move(reached.gradient);
  }

 private:
  // Aside, if there is one: what it writes counts as made there.
  void finish_shared() {
    const auto all = std::exchange(shared_, {});
    for (const auto& one : all) {
      SharedWork& work = *one.second;
      if (!begin_aside(work.tensors(), [&] { work.run(); })) work.run();
    }
  }

  static void finish(Reached& reached) {
    Meta& leaf = *reached.leaf;
    if (reached.is_finished || leaf.observer == nullptr || !leaf.requires_grad) return;
    reached.gradient = leaf.observer->finish_leaf(leaf.number, leaf.grad, reached.gradient);
    reached.is_finished = true;
  }

  // A leaf behind a node that did not run still waits for it.
  void end_observed() {
    if (!is_counting_) return;
    std::vector<LeafObserver*> observers;
    for (Reached& reached : leaves_) {
      finish(reached);
      LeafObserver* observer = reached.is_finished ? reached.leaf->observer : nullptr;
      if (observer != nullptr && std::find(observers.begin(), observers.end(), observer) == observers.end())
        observers.push_back(observer);
    }
    for (LeafObserver* observer : observers) observer->end_pass();
  }

  // Whether a gradient along the edge, the only one of its node, may be multiplied by the node's derivative in advance.
  [[nodiscard]] bool offers(const Edge& edge) const {
    if (!edge.node) return false;
    const Derivative& derivative = edge.node->derivative;
    return derivative.activation != Activation::none && !edge.node->freed && edge.node->consumers == 1 &&
           derivative.result.is_there() && !gradients_.contains(edge.node.get());
  }
  // Whether `node`'s gradient, through the activation before it, would be the next to reach that activation's input.
  [[nodiscard]] bool passes(const Node& node) const {
    const Node& activation = *node.edges.front().node;
    if (!activation.derivative.is_all || !(ready_.empty() || ready_.top()->sequence < activation.sequence)) return false;
    const Edge& next = activation.edges.front();
    return std::none_of(node.edges.begin(), node.edges.end(),
                        [&](const Edge& other) { return other.node == next.node && other.leaf == next.leaf; });
  }
  // Nothing if it is computed aside: the caller does not wait for it.
  [[nodiscard]] Tensor sum_at(const Edge& edge) const {
    if (edge.node) {
      const auto found = gradients_.find(edge.node.get());
      return found != gradients_.end() && !found->second.is_aside ? found->second.sum : Tensor();
    }
    const auto found = leaf_index_.find(edge.leaf.get());
    if (found == leaf_index_.end() || leaves_[found->second].is_aside || !shared_.empty()) return {};
    return leaves_[found->second].gradient;
  }

  // sum += gradient, aside if one of them is.
  void add(Tensor& sum, bool& sum_is_aside, const Tensor& gradient, bool is_aside) {
    const bool either = sum_is_aside || is_aside;
    if (sum.defined() && either) {
      aside_->begin({sum, gradient}, [&] { accumulate(sum, gradient); });
    } else {
      accumulate(sum, gradient);
    }
    sum_is_aside = either;
  }

  // Replaces the previous gradient, which is included in the new one.
  void replace(const Edge& edge, const Tensor& gradient) {
    (edge.node ? gradients_[edge.node.get()].sum : leaves_[leaf_index_[edge.leaf.get()]].gradient) = gradient;
  }

  // Sends the first input's gradient, to which the steps in `done` have been applied.
  void send_on(const Node& from, const Tensor& gradient, const Onward& done) {
    const Edge& edge = from.edges.front();
    const auto arrive = [&](const Edge& at) { done.sum.defined() ? replace(at, gradient) : send(at, gradient); };
    if (done.derivative == nullptr) return arrive(edge);
    const std::shared_ptr<Node>& node = edge.node;
    if (!passes(from)) {
      gradients_[node.get()] = {gradient, true};
      return ready_.push(node);
    }
    arrive(node->edges.front());
    followed(node->edges.front());
    if (retain_graph_) return;
    node->backward = nullptr, node->derivative = {}, node->freed = true;
    node->edges.clear();
  }

  void run_node(Node& node, const Arrived& arrived) {
    require<AutogradError>(!node.freed, "backward: the graph of ", node.name,
                           " was freed by an earlier backward pass; pass retain_graph = true to keep it");
    Turn turn(*this, node, arrived);
    Gradients results;
    const auto run = [&] { results = call(node, arrived.sum, turn.needs()); };
    arrived.is_aside ? aside_->run(run) : run();
    require<AutogradError>(results.size() == node.edges.size(), "backward of ", node.name, ": expected ", node.edges.size(),
                           " gradients, got ", results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Edge& edge = node.edges[i];
      if (!edge) continue;
      if (results[i].defined()) {
        check(node, edge, results[i], i);
        const bool is_aside = turn.is_aside(i);
        i == 0 && !is_aside ? send_on(node, results[i], turn.done()) : send(edge, results[i], is_aside);
      }
      followed(edge);
    }
    if (!retain_graph_) node.edges.clear();
  }

  Gradients call(Node& node, const Tensor& gradient, Needs needs) const {
    try {
      if (retain_graph_) return node.backward(gradient, needs);
      const BackwardFunction backward = std::exchange(node.backward, nullptr);  // its saved tensors are freed with it
      node.derivative = {};
      node.freed = true;
      return backward(gradient, needs);
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
  Device device_;
  std::optional<Aside> aside_;
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, RunsLater> ready_;
  std::unordered_map<const Node*, Arrived> gradients_;
  std::vector<std::pair<std::unique_ptr<SharedWork> (*)(), std::unique_ptr<SharedWork>>> shared_;  // by what made it
  std::vector<Reached> leaves_;                                                                    // in order of arrival
  std::unordered_map<const Meta*, std::size_t> leaf_index_;
  bool is_counting_ = false;
  std::unordered_map<const Meta*, std::int64_t> awaited_;  // edges to observed leaves that have not been followed
};

}  // namespace

SharedWork* Turn::shared(std::unique_ptr<SharedWork> (*make)()) {
  SharedWork* const work = pass_.shared(node_, make);
  if (work != nullptr && pass_.has_aside()) inputs_aside_ = ~std::uint64_t{0};
  return work;
}

Onward Turn::onward() const { return is_aside_ ? Onward{} : pass_.onward(node_); }

void Turn::aside(std::initializer_list<int> inputs, std::vector<Tensor> uses, const std::function<void()>& work) {
  if (is_aside_ || !pass_.begin_aside(std::move(uses), work)) return work();
  for (const int input : inputs) inputs_aside_ |= std::uint64_t{1} << input;
}

namespace {

// A one of root's shape, dtype and device: made once for each and shared, so it must not be written to. A recorded pass uses
// one that existed before, or its own.
Tensor shared_one(const Tensor& root) {
  struct One {
    DType dtype;
    Device device;
    Tensor value;
  };
  static std::mutex mutex;
  static auto* const ones = new std::vector<One>;  // never destroyed: a device may be gone by then
  const std::lock_guard lock(mutex);
  const auto known = std::find_if(ones->begin(), ones->end(),
                                  [&](const One& one) { return one.dtype == root.dtype() && one.device == root.device(); });
  if (known != ones->end()) return known->value.reshape(root.shape());
  Tensor one = Tensor::ones_like(root);
  if (root.device().is_cuda() && cuda::capturing()) return one;
  backend_of(root.device()).synchronize();  // once: threads may use it on other streams from now on
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
  BackwardPass pass(retain_graph, root.device());
  const std::shared_ptr<Meta>& meta = TensorAccess::meta(root);
  Edge edge;
  if (meta->node) {
    edge.node = meta->node;
  } else {
    edge.leaf = meta;
  }
  if (observed_leaves.load(std::memory_order_relaxed) > 0) pass.count_edges(edge);
  pass.send(edge, start);
  pass.followed(edge);
  pass.run();
  pass.store_leaves(start);
}

void observe_leaf(const Tensor& leaf, LeafObserver* observer, std::size_t number) {
  require<AutogradError>(leaf.is_leaf() && (observer == nullptr || leaf.requires_grad()),
                         "observe_leaf: expected a leaf that requires gradients");
  Meta& meta = *TensorAccess::meta(leaf);
  require<AutogradError>(observer == nullptr || meta.observer == nullptr, "observe_leaf: the leaf ", leaf.shape(),
                         " has another observer");
  observed_leaves += (observer != nullptr ? 1 : 0) - (meta.observer != nullptr ? 1 : 0);
  meta.observer = observer;
  meta.number = number;
}

bool is_observed(const Tensor& leaf) {
  const std::shared_ptr<Meta>& meta = TensorAccess::meta(leaf);
  return meta != nullptr && meta->observer != nullptr;
}

}  // namespace polyphase::autograd
