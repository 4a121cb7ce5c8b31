#include "distributed/network/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "distributed/distributed_error.hpp"

namespace polyphase::distributed {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail(const char* what, int error) { throw DistributedError(concat(what, ": ", reason(error))); }

// Waits until the socket is ready for `events`.
void wait_for(int descriptor, short events, Clock::time_point deadline, const char* what) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left < 0) fail(what, ETIMEDOUT);
    pollfd polled{descriptor, events, 0};
    const int count = ::poll(&polled, 1, static_cast<int>(std::min<long long>(left + 1, 60'000)));
    if (count > 0) return;
    if (count < 0 && errno != EINTR) fail(what, errno);
  }
}

void configure(int descriptor) {
  const int on = 1;
  (void)::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::fcntl(descriptor, F_SETFL, O_NONBLOCK) != 0 || ::fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0) fail("fcntl", errno);
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  require<DistributedError>(status == 0, "the name ", host, " has no address: ", ::gai_strerror(status));
  return {found, ::freeaddrinfo};
}

bool is_loopback(const addrinfo& address) {
  if (address.ai_family == AF_INET) {
    const auto& in = *reinterpret_cast<const sockaddr_in*>(address.ai_addr);
    return (ntohl(in.sin_addr.s_addr) >> 24U) == 127;
  }
  const auto& in6 = *reinterpret_cast<const sockaddr_in6*>(address.ai_addr);
  return address.ai_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

Socket listen_at(const sockaddr* address, socklen_t length, int& error) {
  Socket socket(::socket(address->sa_family, SOCK_STREAM, 0));
  const int on = 1;
  const int off = 0;
  if (!socket) return error = errno, Socket();
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) (void)::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(socket.get(), address, length) != 0 || ::listen(socket.get(), 1024) != 0) return error = errno, Socket();
  configure(socket.get());
  return socket;
}

Socket connect_to(const addrinfo& address, Clock::time_point deadline, int& error) {
  Socket socket(::socket(address.ai_family, SOCK_STREAM, 0));
  if (!socket) return error = errno, Socket();
  configure(socket.get());
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) return error = errno, Socket();
  try {
    wait_for(socket.get(), POLLOUT, deadline, "connect");
  } catch (const DistributedError&) {
    return error = ETIMEDOUT, Socket();
  }
  socklen_t length = sizeof error;
  (void)::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? std::move(socket) : Socket();
}

}  // namespace

Socket::~Socket() { close(); }

void Socket::close() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

Socket Socket::connect(const std::string& host, int port, Clock::time_point deadline) {
  const Addresses addresses = resolve(host, port);
  int error = 0;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    error = 0;
    if (Socket socket = connect_to(*address, deadline, error)) return socket;
  }
  fail("connect", error);
}

Socket Socket::listen(const std::string& host, int port) {
  int error = 0;
  const Addresses addresses = resolve(host, port);
  if (is_loopback(*addresses)) {
    Socket socket = listen_at(addresses->ai_addr, addresses->ai_addrlen, error);
    return socket ? std::move(socket) : throw DistributedError(concat("listen: ", reason(error)));
  }
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<std::uint16_t>(port));
  if (Socket socket = listen_at(reinterpret_cast<const sockaddr*>(&any6), sizeof any6, error)) return socket;
  if (error == EADDRINUSE) fail("listen", error);
  sockaddr_in any{};  // a machine without IPv6
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<std::uint16_t>(port));
  Socket socket = listen_at(reinterpret_cast<const sockaddr*>(&any), sizeof any, error);
  return socket ? std::move(socket) : throw DistributedError(concat("listen: ", reason(error)));
}

Socket Socket::accept(Clock::time_point deadline) const {
  while (true) {
    wait_for(descriptor_, POLLIN, deadline, "accept");
    Socket socket(::accept(descriptor_, nullptr, nullptr));
    if (!socket) continue;  // the other end has gone again
    configure(socket.get());
    return socket;
  }
}

int Socket::port() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &length) != 0) fail("getsockname", errno);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string Socket::peer() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(descriptor_, reinterpret_cast<sockaddr*>(&address), &length) != 0) fail("getpeername", errno);
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = address.ss_family == AF_INET6
                          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
                          : static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  (void)::inet_ntop(address.ss_family, bytes, text.data(), text.size());
  std::string result = text.data();
  return result.starts_with("::ffff:") ? result.substr(7) : result;
}

void Socket::send(const void* data, std::size_t bytes, Clock::time_point deadline) const {
  const char* at = static_cast<const char*>(data);
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t count = send_some(at + done, bytes - done);
    if (count == 0) wait_for(descriptor_, POLLOUT, deadline, "send");
    done += count;
  }
}

void Socket::receive(void* data, std::size_t bytes, Clock::time_point deadline) const {
  char* at = static_cast<char*>(data);
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t count = receive_some(at + done, bytes - done);
    if (count == 0) wait_for(descriptor_, POLLIN, deadline, "receive");
    done += count;
  }
}

std::size_t Socket::send_some(const void* data, std::size_t bytes) const {
  const ssize_t count = ::send(descriptor_, data, bytes, MSG_NOSIGNAL);
  if (count >= 0) return static_cast<std::size_t>(count);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  fail("send", errno);
}

std::size_t Socket::receive_some(void* data, std::size_t bytes) const {
  if (bytes == 0) return 0;
  const ssize_t count = ::recv(descriptor_, data, bytes, 0);
  if (count > 0) return static_cast<std::size_t>(count);
  if (count == 0) throw DistributedError("receive: the connection was closed");
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  fail("receive", errno);
}

Message& Message::put(std::int64_t number) {
  const char* bytes = reinterpret_cast<const char*>(&number);
  bytes_.insert(bytes_.end(), bytes, bytes + sizeof number);
  return *this;
}

Message& Message::put(std::string_view text) {
  put(static_cast<std::int64_t>(text.size()));
  bytes_.insert(bytes_.end(), text.begin(), text.end());
  return *this;
}

void Message::read(void* data, std::size_t bytes) {
  require<DistributedError>(bytes <= bytes_.size() - position_, "a message is shorter than its contents");
  std::memcpy(data, bytes_.data() + position_, bytes);
  position_ += bytes;
}

std::int64_t Message::number() {
  std::int64_t number = 0;
  read(&number, sizeof number);
  return number;
}

std::string Message::text() {
  const auto size = static_cast<std::size_t>(number());
  require<DistributedError>(size <= bytes_.size() - position_, "a message is shorter than its contents");
  std::string text(size, '\0');
  read(text.data(), size);
  return text;
}

std::vector<char> Message::framed() const {
  const auto size = static_cast<std::int64_t>(bytes_.size());
  std::vector<char> framed(sizeof size + bytes_.size());
  std::memcpy(framed.data(), &size, sizeof size);
  std::copy(bytes_.begin(), bytes_.end(), framed.begin() + sizeof size);
  return framed;
}

void Message::send(const Socket& socket, Clock::time_point deadline) const {
  const std::vector<char> bytes = framed();
  socket.send(bytes.data(), bytes.size(), deadline);
}

Message Message::receive(const Socket& socket, Clock::time_point deadline, std::size_t most) {
  std::int64_t size = 0;
  socket.receive(&size, sizeof size, deadline);
  require<DistributedError>(size >= 0 && static_cast<std::size_t>(size) <= most, "a message of ", size, " bytes is too long");
  Message message;
  message.bytes_.resize(static_cast<std::size_t>(size));
  socket.receive(message.bytes_.data(), message.bytes_.size(), deadline);
  return message;
}

bool Message::take(std::vector<char>& bytes, Message& message) {
  std::int64_t size = 0;
  if (bytes.size() < sizeof size) return false;
  std::memcpy(&size, bytes.data(), sizeof size);
  const std::size_t end = sizeof size + static_cast<std::size_t>(size);
  if (bytes.size() < end) return false;
  message.bytes_.assign(bytes.begin() + sizeof size, bytes.begin() + static_cast<std::ptrdiff_t>(end));
  message.position_ = 0;
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(end));
  return true;
}

std::uint64_t hash_of(std::string_view text, std::uint64_t start) {
  for (const char c : text) start = (start ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return start;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

}  // namespace polyphase::distributed
