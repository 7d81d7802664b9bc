#include "fabric/reduction/control_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace plugfest::reduction {
namespace {

void set_option(int socket, int level, int name, int value) { setsockopt(socket, level, name, &value, sizeof(value)); }

}  // namespace

bool LineReader::add(std::string_view bytes) {
  const std::size_t rest = received_.size() - (received_.find_last_of('\n') + 1);
  const std::size_t end = bytes.find('\n');
  if (rest + (end == std::string_view::npos ? bytes.size() : end) > max_bytes_) return false;
  received_.append(bytes);
  return true;
}

std::optional<std::string> LineReader::next() {
  const std::size_t end = received_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

void watch_peer(int socket) {
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
}

}  // namespace plugfest::reduction
