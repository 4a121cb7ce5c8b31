#include "distributed/sync_batch_norm.hpp"

#include <memory>

#include "layers/norm.hpp"
#include "ops/norm.hpp"

namespace polyphase::distributed {
namespace {

class SumOverRanks : public StatisticsSum {
 public:
  explicit SumOverRanks(Group group) : group_(std::move(group)) {}
  void sum(const Tensor& values) override {
    group_.communicator().all_reduce(values, Combine::sum, "BatchNorm's statistics").wait();
  }

 private:
  Group group_;
};

class Synchronizer : public Visitor {
 public:
  explicit Synchronizer(const Group& group) : over_(std::make_shared<SumOverRanks>(group)) {}
  void parameter(std::string_view, Tensor&) override {}
  void buffer(std::string_view, Tensor&) override {}
  void module(std::string_view, Module& child) override { synchronize(child); }

  void synchronize(Module& module) {
    if (auto* norm = dynamic_cast<BatchNorm1d*>(&module)) {
      norm->set_statistics_sum(over_);
      ++count;
    }
    module.visit(*this);
  }

  std::int64_t count = 0;

 private:
  std::shared_ptr<StatisticsSum> over_;
};

}  // namespace

std::int64_t synchronize_batch_norm(Module& module, const Group& group) {
  if (group.world() == 1) return 0;
  Synchronizer synchronizer(group);
  synchronizer.synchronize(module);
  return synchronizer.count;
}

}  // namespace polyphase::distributed
