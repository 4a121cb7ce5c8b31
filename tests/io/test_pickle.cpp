#include "io/pickle.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"
#include "support/torch_bytes.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

io::ByteReader reader_of(const std::string& bytes) { return {"load", "f", bytes}; }

std::string error_for(const std::string& value) {
  const std::string bytes = pickle::whole(value);
  return error_of<FormatError>([&] {
    io::ByteReader reader = reader_of(bytes);
    return io::Pickle(reader).root().content.index();
  });
}

template <class Kind>
Kind value_of(const std::string& value) {
  const std::string bytes = pickle::whole(value);
  io::ByteReader reader = reader_of(bytes);
  const io::Pickle pickle(reader);
  REQUIRE(pickle.root().as<Kind>() != nullptr);
  CHECK(reader.is_at_end());
  return *pickle.root().as<Kind>();
}

}  // namespace

TEST_CASE("plain values") {
  CHECK(value_of<std::int64_t>("K\xff") == 255);
  CHECK(value_of<std::int64_t>("M\xff\xff") == 65535);
  CHECK(value_of<std::int64_t>(pickle::number(-3)) == -3);
  CHECK(value_of<std::int64_t>(std::string("\x8a\x02\x00\xff", 4)) == -256);
  CHECK(value_of<std::int64_t>(std::string("\x8a\x00", 2)) == 0);
  CHECK(value_of<std::int64_t>(std::string("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", 10)) == INT64_MAX);
  CHECK(value_of<bool>("\x88"));
  CHECK(value_of<double>(std::string("G\xc0\0\0\0\0\0\0\0", 9)) == -2);
  CHECK(value_of<std::string>("\x8c\x02hi") == "hi");
  CHECK(value_of<std::string>(pickle::text("k") + "q\x05" + "0h\x05") == "k");
  CHECK(value_of<io::PickleList>("K\x01K\x02K\x03\x87").items.size() == 3);
  CHECK(value_of<io::PickleDict>(pickle::ordered_dict() + pickle::text("a") + "K\x01s").items.size() == 1);
  CHECK(value_of<io::PickleDict>("(" + pickle::text("a") + "K\x01" + "d").items.size() == 1);
}

TEST_CASE("an ordered dict of pairs, a torch.Size, a parameter, a state dict's _metadata") {
  const std::string pairs = "](" + pickle::tuple(pickle::text("a") + "K\x01") + "e";
  CHECK(value_of<io::PickleDict>(pickle::call(pickle::global("collections", "OrderedDict"), pairs)).items.size() == 1);
  CHECK(value_of<io::PickleList>(pickle::call(pickle::global("torch", "Size"), pickle::sizes({4, 5}))).items.size() == 2);
  const std::string parameter = pickle::call(pickle::global("torch._utils", "_rebuild_parameter"),
                                             pickle::tensor("0", 4, {4}, {1}) + "\x88" + pickle::ordered_dict());
  CHECK(value_of<io::PickleTensor>(parameter).numel == 4);
  CHECK(value_of<io::PickleDict>(pickle::ordered_dict() + pickle::dict(pickle::text("_metadata") + "N") + "b").items.empty());
}

TEST_CASE("a pickle that is not well formed") {
  const auto has = [](const std::string& value, const char* part) { return error_for(value).find(part) != std::string::npos; };
  CHECK(has("0", "a value from an empty stack"));
  CHECK(has("(0", "a value from an empty stack"));
  CHECK(has("t", "a mark that does not exist"));
  CHECK(has("h\x07", "has not stored"));
  CHECK(has("K\x01K\x02\x61", "expects a list"));
  CHECK(has("}(K\x01u", "a key and no value"));
  CHECK(has("K\x01)R", "other than a function"));
  CHECK(has("K\x01Q", "a storage of another form"));
  CHECK(has("\x8a\x09zzzzzzzzz", "expected at most 8"));
  CHECK(has(std::string("X\xff\xff\xff\xff", 5), "more bytes"));
  CHECK(has("\xfe", "opcode 254"));
  CHECK(has("c", "expected a line"));
}
