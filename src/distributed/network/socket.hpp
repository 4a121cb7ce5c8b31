#pragma once
// TCP connections with deadlines. Internal.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace polyphase::distributed {

using Clock = std::chrono::steady_clock;

/// An owned, non-blocking TCP socket. Functions throw DistributedError with the system's reason; its text has no rank, which
/// the caller adds.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  [[nodiscard]] int get() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }

  /// Connects to host:port, once; a refused connection is not tried again.
  [[nodiscard]] static Socket connect(const std::string& host, int port, Clock::time_point deadline);
  /// Listens at `port` (0: a free one) of all interfaces; of the loopback only if `host` is an address of it.
  [[nodiscard]] static Socket listen(const std::string& host, int port);
  /// The next connection.
  [[nodiscard]] Socket accept(Clock::time_point deadline) const;
  /// The port that it listens at.
  [[nodiscard]] int port() const;
  /// The numeric address of the other end.
  [[nodiscard]] std::string peer() const;

  void send(const void* data, std::size_t bytes, Clock::time_point deadline) const;
  void receive(void* data, std::size_t bytes, Clock::time_point deadline) const;
  /// The number of bytes that can be sent or received without waiting, 0 if the other side is not ready. receive_some() throws
  /// when the connection is closed.
  [[nodiscard]] std::size_t send_some(const void* data, std::size_t bytes) const;
  [[nodiscard]] std::size_t receive_some(void* data, std::size_t bytes) const;
  void close() noexcept;

 private:
  int descriptor_ = -1;
};

/// A sequence of numbers and texts in bytes, sent with its length. Both ends are processes of one job on machines of one kind.
class Message {
 public:
  Message() = default;
  Message& put(std::int64_t number);
  Message& put(std::string_view text);
  [[nodiscard]] std::int64_t number();
  [[nodiscard]] std::string text();

  void send(const Socket& socket, Clock::time_point deadline) const;
  /// Throws DistributedError for a message of more than `most` bytes.
  [[nodiscard]] static Message receive(const Socket& socket, Clock::time_point deadline, std::size_t most = 1 << 24);
  /// Takes the first whole message from `bytes`; none if it is not there yet.
  [[nodiscard]] static bool take(std::vector<char>& bytes, Message& message);
  /// The bytes that send() sends.
  [[nodiscard]] std::vector<char> framed() const;

 private:
  void read(void* data, std::size_t bytes);
  std::vector<char> bytes_;
  std::size_t position_ = 0;
};

/// FNV-1a of a text or of bytes: not for strangers.
[[nodiscard]] std::uint64_t hash_of(std::string_view text, std::uint64_t start = 14695981039346656037ULL);
/// The name of this machine.
[[nodiscard]] std::string host_name();

}  // namespace polyphase::distributed
