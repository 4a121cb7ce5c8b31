#include "distributed/network/socket.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>

#include "distributed/distributed_error.hpp"

using namespace polyphase;
using namespace polyphase::distributed;

namespace {

Clock::time_point soon() { return Clock::now() + std::chrono::seconds(5); }

// Two ends of a connection.
struct Ends {
  Socket listener = Socket::listen("127.0.0.1", 0);
  Socket a = Socket::connect("localhost", listener.port(), soon());
  Socket b = listener.accept(soon());
};

}  // namespace

TEST_CASE("socket: messages arrive with their numbers and texts") {
  const Ends ends;
  CHECK(ends.b.peer() == "127.0.0.1");
  Message().put(-7).put("").put("text with\nlines").send(ends.a, soon());
  Message message = Message::receive(ends.b, soon());
  CHECK(message.number() == -7);
  CHECK(message.text().empty());
  CHECK(message.text() == "text with\nlines");
  CHECK_THROWS_WITH_AS((void)message.number(), "a message is shorter than its contents", DistributedError);
}

TEST_CASE("socket: a message is taken from a stream when it is whole") {
  std::vector<char> stream;
  const std::vector<char> bytes = Message().put(1).put("abc").framed();
  Message message;
  for (const char byte : bytes) {
    CHECK_FALSE(Message::take(stream, message));
    stream.push_back(byte);
  }
  stream.push_back('x');
  CHECK(Message::take(stream, message));
  CHECK(stream.size() == 1);
  CHECK(message.number() == 1);
  CHECK(message.text() == "abc");
}

TEST_CASE("socket: deadlines, closed connections and long messages are errors") {
  Ends ends;
  int number = 0;
  CHECK_THROWS_WITH_AS(ends.b.receive(&number, sizeof number, Clock::now() + std::chrono::milliseconds(20)),
                       "receive: Connection timed out", DistributedError);
  Message().put(std::string(100, 'a')).send(ends.a, soon());
  CHECK_THROWS_WITH_AS(Message::receive(ends.b, soon(), 50), "a message of 108 bytes is too long", DistributedError);
  ends.a.close();
  std::string rest(108, ' ');
  ends.b.receive(rest.data(), rest.size(), soon());
  CHECK_THROWS_WITH_AS(ends.b.receive(&number, sizeof number, soon()), "receive: the connection was closed", DistributedError);
  const int port = ends.listener.port();
  CHECK_THROWS_WITH_AS(Socket::listen("127.0.0.1", port), "listen: Address already in use", DistributedError);
  ends.listener.close();
  CHECK_THROWS_WITH_AS(Socket::connect("127.0.0.1", port, soon()), "connect: Connection refused", DistributedError);
  CHECK_THROWS_AS((void)Socket::connect("nowhere.invalid", port, soon()), DistributedError);
}

TEST_CASE("socket: large amounts go both ways") {
  const Ends ends;
  const std::string sent(3'000'000, 'q');
  std::string received(sent.size(), ' ');
  std::thread other([&] { ends.a.send(sent.data(), sent.size(), soon()); });
  ends.b.receive(received.data(), received.size(), soon());
  other.join();
  CHECK(received == sent);
}
