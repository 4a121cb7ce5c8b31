#include "optim/optimizer.hpp"

#include <doctest/doctest.h>

#include <memory>

#include "autograd/no_grad.hpp"
#include "optim/adam.hpp"
#include "optim/sgd.hpp"
#include "support/quadratic.hpp"

using namespace polyphase;

namespace {

Tensor leaf(const std::vector<double>& values) { return Tensor::from_vector(values).set_requires_grad(true); }

void set_grads(const std::vector<Tensor>& parameters, double value) {
  for (const Tensor& p : parameters) p.set_grad(Tensor::full(p.shape(), value, {.dtype = p.dtype()}));
}

OptimizerState snapshot(const Optimizer& optimizer) {
  OptimizerState state = optimizer.state();
  for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
  return state;
}

std::vector<std::string> names_of(const OptimizerState& state) {
  std::vector<std::string> names;
  for (const auto& [name, value] : state.numbers) names.push_back(name);
  for (const auto& [name, value] : state.tensors) names.push_back(name);
  return names;
}

double& number(OptimizerState& state, const std::string& name) {
  for (auto& [key, value] : state.numbers) {
    if (key == name) return value;
  }
  FAIL("no " << name);
  return state.numbers.front().second;
}

}  // namespace

TEST_CASE("optimizer: groups with a learning rate and weight decay of their own") {
  const Tensor a = leaf({1});
  const Tensor b = leaf({1});
  const Tensor c = leaf({1});
  SGD optimizer(
      std::vector<ParameterGroup>{
          {.parameters = {a}}, {.parameters = {b}, .learning_rate = 0.5}, {.parameters = {c}, .weight_decay = 1.0}},
      {.learning_rate = 0.25});
  CHECK(optimizer.group_count() == 3);
  CHECK(optimizer.learning_rate() == 0.25);
  CHECK(optimizer.learning_rate(1) == 0.5);
  CHECK(optimizer.weight_decay(2) == 1.0);
  set_grads({a, b, c}, 1);
  optimizer.step();
  CHECK(a.item() == 0.75);
  CHECK(b.item() == 0.5);
  CHECK(c.item() == 0.5);
  CHECK(optimizer.steps() == 1);  // the step count of three groups
  optimizer.set_learning_rate(0.125);
  CHECK(optimizer.learning_rate(1) == 0.125);
  optimizer.set_learning_rate(1, 0);
  CHECK(optimizer.learning_rate(0) == 1);
  CHECK(optimizer.initial_learning_rate(0) == 0.25);
  CHECK_THROWS_WITH_AS((void)optimizer.learning_rate(3), "SGD: expected a parameter group below 3, got 3", ShapeError);
  CHECK_THROWS_WITH_AS(optimizer.set_learning_rate(-1), "SGD: expected learning_rate >= 0, got -1", ShapeError);
}

TEST_CASE("optimizer: a parameter without gradient stays, and its step count with it") {
  const Tensor a = leaf({1});
  const Tensor late = leaf({1});
  Adam optimizer({a, late}, {.learning_rate = 0.5});
  set_grads({a}, 1);
  optimizer.step();
  optimizer.step();
  CHECK(late.item() == 1);
  CHECK(optimizer.steps() == 2);
  // Adam's first step is learning_rate*sign(g), also when it comes later.
  set_grads({late}, 1);
  optimizer.step();
  CHECK(late.item() == doctest::Approx(0.5));
  OptimizerState state = optimizer.state();
  CHECK(number(state, "0.steps") == 3);
  CHECK(number(state, "1.steps") == 1);
}

TEST_CASE("optimizer: a step marks the weights as changed, so that backward through the old ones is refused") {
  const Tensor w = leaf({2});
  const Tensor loss = sum(square(w));
  SGD optimizer({w});
  set_grads({w}, 1);
  optimizer.step();
  CHECK_THROWS_AS(loss.backward(), AutogradError);
}

TEST_CASE("optimizer: gradients of any strides, empty parameters, parameters of several dtypes") {
  const Tensor w = Tensor::zeros({2, 2}, {.dtype = DType::f64, .requires_grad = true});
  w.set_grad(Tensor::from_vector<double>({1, 2, 3, 4}, {2, 2}).transpose(0, 1));
  const Tensor empty = Tensor::zeros({0, 3}, {.requires_grad = true});
  empty.set_grad(Tensor::zeros({0, 3}));
  const Tensor single = Tensor::zeros({1}, {.requires_grad = true});
  single.set_grad(Tensor::ones({1}));
  SGD optimizer({w, empty, single}, {.learning_rate = 1, .momentum = 0.5});
  optimizer.step();
  CHECK(w.to_vector<double>() == std::vector<double>{-1, -3, -2, -4});
  CHECK(single.item() == -1);
}

TEST_CASE("optimizer: zero_grad forgets") {
  const Tensor w = leaf({2});
  SGD optimizer({w});
  set_grads({w}, 1);
  optimizer.zero_grad();
  CHECK_FALSE(w.grad().defined());
}

TEST_CASE("optimizer: what cannot be optimized is refused") {
  const Tensor w = leaf({1, 2});
  const auto make = [](std::vector<Tensor> parameters) { SGD(std::move(parameters)); };
  CHECK_THROWS_WITH_AS(make({}), "SGD: expected at least one parameter, got none", ShapeError);
  CHECK_THROWS_WITH_AS(make({w, Tensor()}), "SGD: parameter 1 is undefined", ShapeError);
  CHECK_THROWS_WITH_AS(make({w, w}), "SGD: parameter 1 is the same tensor as parameter 0", ShapeError);
  CHECK_THROWS_WITH_AS(make({Tensor::zeros({2}, {.dtype = DType::i64})}),
                       "SGD: expected floating-point parameters, parameter 0 is i64", DTypeError);
  CHECK_THROWS_WITH_AS(make({w * 2.0}), "SGD: parameter 0 (2,) is the result of an operation; only leaves can be optimized",
                       AutogradError);
  CHECK_THROWS_WITH_AS(make({Tensor::zeros({2, 3}).transpose(0, 1)}),
                       "SGD: expected contiguous parameters, parameter 0 (3, 2) has strides (1, 3)", ShapeError);
}

TEST_CASE("optimizer: state has a name for everything") {
  const Tensor a = leaf({1, 2});
  const Tensor b = leaf({1});
  Adam optimizer({a, b});
  set_grads({a}, 1);
  optimizer.step();
  CHECK(names_of(optimizer.state()) == std::vector<std::string>{"parameters", "steps", "group0.learning_rate",
                                                                "group0.initial_learning_rate", "group0.weight_decay",
                                                                "0.steps", "0.momentum", "0.second"});
}

TEST_CASE("optimizer: going on from a restored state gives the same bits") {
  const auto run = [](Optimizer& optimizer, const testing::Quadratic& problem, int steps) {
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      problem.loss().backward();
      optimizer.step();
    }
  };
  // `used`: the optimizer that loads the state has already made steps.
  const auto check_one = [&](auto make, bool used) {
    const testing::Quadratic straight;
    auto first = make(straight.parameter);
    run(*first, straight, 7);
    const OptimizerState saved = snapshot(*first);
    testing::Quadratic resumed;
    auto second = make(resumed.parameter);
    if (used) run(*second, resumed, 1);
    {
      const NoGradGuard no_grad;
      resumed.parameter.copy_(straight.parameter);
    }
    second->set_learning_rate(99);
    second->load_state(saved);
    CHECK(second->steps() == 7);
    run(*first, straight, 7);
    run(*second, resumed, 7);
    CHECK(resumed.parameter.template to_vector<double>() == straight.parameter.template to_vector<double>());
  };
  const auto check = [&](auto make) {
    for (const bool used : {false, true}) check_one(make, used);
  };
  check([](const Tensor& w) { return std::make_unique<Adam>(std::vector<Tensor>{w}, AdamOptions{.learning_rate = 0.1}); });
  check([](const Tensor& w) {
    return std::make_unique<SGD>(std::vector<Tensor>{w}, SgdOptions{.learning_rate = 0.1, .momentum = 0.9});
  });
  check([](const Tensor& w) { return std::make_unique<SGD>(std::vector<Tensor>{w}, SgdOptions{.learning_rate = 0.1}); });
}

TEST_CASE("optimizer: a restored state includes the groups' settings") {
  const Tensor w = leaf({1});
  SGD first({w}, {.learning_rate = 0.5, .weight_decay = 0.25}), second({w}, {.learning_rate = 2});
  first.set_learning_rate(0.125);
  second.load_state(first.state());
  CHECK(second.learning_rate() == 0.125);
  CHECK(second.initial_learning_rate() == 0.5);
  CHECK(second.weight_decay() == 0.25);
}

TEST_CASE("optimizer: a restored state is written where the old one was, so that recorded steps see it") {
  const Tensor a = leaf({1, 2}), b = leaf({3});
  Adam optimizer({a, b});
  set_grads({a}, 1);
  optimizer.step();
  const OptimizerState early = snapshot(optimizer);
  set_grads({a, b}, 2);
  optimizer.step();
  const Tensor moment = optimizer.state().tensors[0].second, late = optimizer.state().tensors[2].second;
  CHECK(late.item() != 0);
  optimizer.load_state(early);
  CHECK(optimizer.state().tensors[0].second.raw() == moment.raw());
  CHECK(moment.to_vector<double>() == early.tensors[0].second.to_vector<double>());
  CHECK(late.item() == 0);  // b had no update yet
  CHECK(optimizer.state().numbers == early.numbers);
}

TEST_CASE("optimizer: a step is skipped where the flag says so, and a flag that cannot be is refused") {
  const Tensor w = leaf({1});
  SGD optimizer({w}, {.learning_rate = 1});
  set_grads({w}, 0.5);
  Tensor flag = Tensor::ones({}, {.dtype = DType::f64});
  optimizer.step(flag);
  CHECK(w.item() == 1);
  CHECK(optimizer.steps() == 0);
  flag.fill_(0);
  optimizer.step(flag);
  CHECK(w.item() == 0.5);
  CHECK(optimizer.steps() == 1);
  CHECK_THROWS_WITH_AS(optimizer.step(Tensor::ones({})), "SGD::step: expected skip of f64, got f32", DTypeError);
  CHECK_THROWS_WITH_AS(optimizer.step(Tensor::ones({2}, {.dtype = DType::f64})),
                       "SGD::step: expected skip of one element, got (2,)", ShapeError);
  CHECK(optimizer.parameters().size() == 1);
  CHECK(optimizer.parameters()[0].is_same(w));
}

TEST_CASE("optimizer: a step without any gradient is none") {
  Adam optimizer({leaf({1})});
  optimizer.step();
  CHECK(optimizer.steps() == 0);
}

TEST_CASE("optimizer: a state that does not fit is refused and changes nothing") {
  const Tensor w = leaf({1, 2});
  Adam optimizer({w});
  set_grads({w}, 1);
  optimizer.step();
  const OptimizerState good = snapshot(optimizer);
  const auto expect = [&](auto change, const char* text) {
    OptimizerState bad = good;
    change(bad);
    CHECK_THROWS_WITH_AS(optimizer.load_state(bad), text, Error);
    CHECK(optimizer.state().numbers == good.numbers);
    CHECK(optimizer.state().tensors[0].second.to_vector<double>() == good.tensors[0].second.to_vector<double>());
  };
  using S = OptimizerState;
  expect([](S& s) { s = {}; }, "Adam::load_state: the number \"parameters\" is missing");
  expect([](S& s) { number(s, "parameters") = 3; }, "Adam::load_state: expected the state of 1 parameters, got 3");
  expect([](S& s) { number(s, "steps") = 1.5; }, "Adam::load_state: expected \"steps\" to be a whole number >= 0, got 1.5");
  expect([](S& s) { number(s, "group0.learning_rate") = -1; }, "Adam: expected learning_rate >= 0, got -1");
  expect([](S& s) { s.tensors.pop_back(); }, "Adam::load_state: the tensor \"0.second\" is missing");
  expect([](S& s) { s.tensors[1].second = Tensor::zeros({3}); },
         "Adam::load_state: expected \"0.second\" of shape (2,), got (3,)");
  expect([](S& s) { s.tensors[0].second = {}; },
         "Adam::load_state: expected \"0.momentum\" of shape (2,), got an undefined tensor");
  expect([](S& s) { s.numbers.emplace_back("more", 1); }, "Adam::load_state: expected 2 tensors and 6 numbers, got 2 and 7");
}

TEST_CASE("optimizer: on the host a parameter of 16 bits is refused before any other changes") {
  const DeviceGuard host(Device::cpu());
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor wide = leaf({1}), narrow = Tensor::ones({1}, {.dtype = dtype, .requires_grad = true});
    SGD sgd(std::vector<ParameterGroup>{{.parameters = {wide}}, {.parameters = {narrow}}});
    Adam adam({wide, narrow});
    set_grads({wide, narrow}, 1);
    const std::string text = concat("::step: expected parameters of f32 or f64 on cpu, parameter 1 is ", dtype);
    CHECK_THROWS_WITH_AS(sgd.step(), ("SGD" + text).c_str(), DTypeError);
    CHECK_THROWS_WITH_AS(adam.step(), ("Adam" + text).c_str(), DTypeError);
    CHECK(wide.item() == 1);
    CHECK(sgd.steps() == 0);
    CHECK(adam.state().tensors.empty());
  }
}
