#pragma once
// C++ guards as context managers.

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "core.hpp"

namespace polyphase::python {

/// `with Guard(arguments):`. The guard is made on entry and destroyed on exit, and may be entered again.
template <class Guard, class... Arguments>
class Context {
 public:
  explicit Context(Arguments... arguments) : arguments_(std::forward<Arguments>(arguments)...) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  void enter() {
    guards_.push_back(std::apply([](auto&&... each) { return std::make_unique<Guard>(each...); }, arguments_));
  }
  void leave() {
    require<Error>(!guards_.empty(), "expected a context that was entered");
    guards_.pop_back();
  }

 private:
  std::tuple<Arguments...> arguments_;
  std::vector<std::unique_ptr<Guard>> guards_;
};

template <class Guard, class... Arguments, class... Extra>
void bind_context(nb::module_& module, const char* name, const char* doc, const Extra&... extra) {
  using Bound = Context<Guard, Arguments...>;
  auto bound = nb::class_<Bound>(module, name, doc);
  if constexpr ((std::is_reference_v<Arguments> || ...)) {
    bound.def(nb::init<Arguments...>(), extra..., nb::keep_alive<1, 2>());
  } else {
    bound.def(nb::init<Arguments...>(), extra...);
  }
  bound
      .def(
          "__enter__",
          [](Bound& self) -> Bound& {
            self.enter();
            return self;
          },
          nb::rv_policy::none)
      .def(
          "__exit__", [](Bound& self, nb::handle, nb::handle, nb::handle) { self.leave(); }, nb::arg("type").none(),
          nb::arg("value").none(), nb::arg("traceback").none());
}

}  // namespace polyphase::python
