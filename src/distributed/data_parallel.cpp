#include "distributed/data_parallel.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "autograd/engine.hpp"
#include "autograd/no_grad.hpp"
#include "device/backend.hpp"
#include "distributed/agreement.hpp"
#include "distributed/data_parallel_state.hpp"

namespace polyphase::distributed {
namespace {

constexpr const char* kName = "DataParallel";

void check(const Group& group, const DataParallelOptions& options) {
  require<ShapeError>(options.first_bucket_bytes >= 1 && options.bucket_bytes >= 1, kName,
                      ": expected buckets of at least one byte, got ", options.first_bucket_bytes, " and ",
                      options.bucket_bytes);
  require<ShapeError>(options.check_every >= 0, kName, ": expected check_every >= 0, got ", options.check_every);
  const std::int64_t micro_batches = options.micro_batches;
  require<ShapeError>(
      micro_batches == 0 || (micro_batches > 0 && std::has_single_bit(static_cast<std::uint64_t>(micro_batches)) &&
                             micro_batches % group.world() == 0),
      kName, ": expected micro_batches to be a power of two that world=", group.world(), " divides, got ", micro_batches);
}

std::string text_of(const DataParallelOptions& options) {
  return concat("first_bucket_bytes ", options.first_bucket_bytes, "\nbucket_bytes ", options.bucket_bytes, "\ncheck_every ",
                options.check_every, "\nmicro_batches ", options.micro_batches, "\nshard_gradients ", options.shard_gradients,
                "\n", options.settings, "\n");
}

}  // namespace

DataParallel::State::State(const Group& joined, Module& trained, const DataParallelOptions& given)
    : group(joined), options(given), all_state(trained.state_dict()) {
  distributed::check(group, options);
  for (auto& [name, parameter] : trained.named_parameters()) {
    require<DeviceError>(parameter.device() == group.device(), kName, ": expected parameters on the group's device ",
                         group.device(), ", ", name, " is on ", parameter.device());
    if (!parameter.requires_grad()) continue;
    names.push_back(name);
    parameters.push_back(parameter);
  }
  if (group.world() > 1) {
    require_same_text(group, "the networks or options", text_of(options) + describe(all_state));
    broadcast_tensors(group, all_state);
  } else if (!uses_tree() && !options.shard_gradients) {
    return;
  }
  checks_finite = options.check_finite.value_or(group.device().is_cpu());
  buckets = make_buckets(parameters, options.first_bucket_bytes, options.bucket_bytes, group.world());
  places = places_in(buckets, parameters);
  for (const Bucket& bucket : buckets) {
    arrived_.emplace_back(bucket.slots.size(), false);
    missing_.push_back(bucket.slots.size());
  }
  pending_.resize(buckets.size());
  kept_.resize(buckets.size());
  trees_.resize(uses_tree() ? buckets.size() : 0);
  for (std::size_t i = 0; i < parameters.size(); ++i) autograd::observe_leaf(parameters[i], this, i);
  if (options.check_every > 0 && group.world() > 1)
    check = group.on_step([this](std::int64_t step) {
      if (step % options.check_every == 0) require_same_bits(group, parameters);
    });
}

DataParallel::State::~State() {
  if (buckets.empty()) return;
  for (const Tensor& parameter : parameters) autograd::observe_leaf(parameter, nullptr);
}

// The gradient will be sent from its place in the bucket. Most are kept until the bucket is full: a copy for each of hundreds
// of parameters would take longer than sending them.
Tensor DataParallel::State::finish_leaf(std::size_t number, const Tensor& before, const Tensor& gradient) {
  const BucketPlace& place = places[number];
  const Tensor& view = place.view;
  Backend& backend = backend_of(view.device());
  if (arrived_[place.bucket][place.slot]) fill(place.bucket);  // an earlier pass failed: its gradient must not be written later
  if (!before.defined() || uses_tree()) {
    if (view.numel() > 0 && gradient.is_contiguous() && gradient.dtype() == view.dtype()) {
      kept_[place.bucket].views.push_back(view);
      kept_[place.bucket].gradients.push_back(gradient.detach());
    } else if (view.numel() > 0) {
      backend.copy(view, gradient);
    }
  } else if (view.numel() > 0) {
    backend.map(MapOp::add, view, std::array{before, gradient}, {});
  }
  view.storage().bump_version();
  if (!arrived_[place.bucket][place.slot]) {
    arrived_[place.bucket][place.slot] = true;
    --missing_[place.bucket];
  }
  if (syncs && !uses_tree()) send_full_buckets();
  return view;
}

// In the order of the buckets, which is the same on all ranks.
void DataParallel::State::send_full_buckets() {
  while (next_ < buckets.size() && missing_[next_] == 0) send(next_++);
}

void DataParallel::State::fill(std::size_t bucket) {
  Kept& kept = kept_[bucket];
  if (kept.views.empty()) return;
  backend_of(group.device()).copy_list(kept.views, kept.gradients);
  buckets[bucket].buffer.storage().bump_version();
  kept.views.clear();
  kept.gradients.clear();
}

void DataParallel::State::send(std::size_t bucket) {
  fill(bucket);
  if (checks_finite) require_finite(bucket);
  if (group.world() == 1) return;
  Communicator& communicator = group.communicator();
  const std::string label = concat("bucket ", bucket, " of ", buckets.size());
  const Tensor& buffer = buckets[bucket].buffer;
  pending_[bucket] = options.shard_gradients ? communicator.reduce_scatter(buffer, Combine::average, label)
                                             : communicator.all_reduce(buffer, Combine::average, label);
}

void DataParallel::State::require_finite(std::size_t bucket) {
  const Device device = group.device();
  const Tensor found = Tensor::zeros({}, {.dtype = DType::f64, .device = device});
  const Tensor one = Tensor::ones({}, {.dtype = DType::f64, .device = device});
  const auto is_finite = [&](const Tensor& gradient) {
    backend_of(device).unscale(std::array{gradient}, one, found);
    return found.item() == 0;
  };
  if (is_finite(buckets[bucket].buffer)) return;
  for (const BucketSlot& slot : buckets[bucket].slots) {
    found.detach().zero_();
    if (is_finite(buckets[bucket].buffer.narrow(0, slot.offset, slot.numel)) || slot.numel == 0) continue;
    group.fail(concat("the gradient of ", names[slot.parameter], " is infinite or NaN"));
  }
}

// A parameter that the pass did not reach keeps what it has, or counts as zero.
void DataParallel::State::fill_missing(std::size_t bucket) {
  for (std::size_t s = 0; s < buckets[bucket].slots.size(); ++s) {
    const BucketSlot& slot = buckets[bucket].slots[s];
    if (arrived_[bucket][s] || (parameters[slot.parameter].grad().defined() && !uses_tree())) continue;
    Tensor part = buckets[bucket].buffer.narrow(0, slot.offset, slot.numel);
    part.zero_();
  }
}

void DataParallel::State::end_pass() {
  for (std::size_t b = 0; b < buckets.size(); ++b) fill(b);
  if (uses_tree()) {
    add_micro_batch();
  } else if (syncs) {
    for (std::size_t b = next_; b < buckets.size(); ++b) {
      fill_missing(b);
      send(b);
    }
    for (Pending& pending : pending_) std::exchange(pending, {}).wait();
  }
  next_ = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    std::fill(arrived_[b].begin(), arrived_[b].end(), false);
    missing_[b] = buckets[b].slots.size();
  }
}

void DataParallel::State::add_micro_batch() {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    fill_missing(b);
    if (checks_finite) require_finite(b);
    trees_[b].add(buckets[b].buffer);
  }
  if (trees_.empty() || trees_.front().count() < options.micro_batches / group.world()) return;
  for (std::size_t b = 0; b < buckets.size(); ++b) sum_over_ranks(b);
}

// The upper levels of the tree, on every rank. The number of micro-batches is a power of two: dividing by it is exact.
void DataParallel::State::sum_over_ranks(std::size_t bucket) {
  const NoGradGuard no_grad;
  Tensor& buffer = buckets[bucket].buffer;
  const Tensor own = trees_[bucket].take();
  const std::int64_t world = group.world();
  if (world == 1) {
    buffer.copy_(own);
  } else {
    const Tensor rows = Tensor::empty({world, buffer.numel()}, {.dtype = buffer.dtype(), .device = buffer.device()});
    rows.select(0, group.rank()).copy_(own);
    group.communicator().all_gather(rows, concat("bucket ", bucket, " of ", buckets.size())).wait();
    add_rows_as_tree(rows);
    buffer.copy_(rows.select(0, 0));
  }
  buffer *= 1.0 / static_cast<double>(options.micro_batches);
}

DataParallel::DataParallel(Group group, Module& module, const DataParallelOptions& options)
    : state_(std::make_unique<State>(group, module, options)) {}
DataParallel::~DataParallel() = default;
DataParallel::DataParallel(DataParallel&&) noexcept = default;
DataParallel& DataParallel::operator=(DataParallel&&) noexcept = default;

DataParallel::NoSync::NoSync(DataParallel& parallel)
    : parallel_(parallel), previous_(std::exchange(parallel.state_->syncs, false)) {}
DataParallel::NoSync::~NoSync() { parallel_.state_->syncs = previous_; }

void DataParallel::check_parameters() {
  if (state_->group.world() > 1) require_same_bits(state_->group, state_->parameters);
}

void DataParallel::broadcast_state() {
  if (state_->group.world() > 1) broadcast_tensors(state_->group, state_->all_state);
}

std::size_t DataParallel::bucket_count() const { return state_->buckets.size(); }

}  // namespace polyphase::distributed
