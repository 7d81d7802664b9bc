#include "rendezvous.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

int number(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

addrinfo* resolve(const Launch& launch) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* address = nullptr;
  if (const int code = getaddrinfo(launch.master_address, launch.master_port, &hints, &address); code != 0) {
    std::fprintf(stderr, "%s: %s\n", launch.master_address, gai_strerror(code));
    std::exit(1);
  }
  return address;
}

void serve(const Launch& launch, const ncclUniqueId& id) {
  const addrinfo* const address = resolve(launch);
  const int listener = socket(address->ai_family, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, address->ai_addr, address->ai_addrlen) != 0) fail("bind");
  if (listen(listener, launch.ranks) != 0) fail("listen");
  for (int peer = 1; peer < launch.ranks; ++peer) {
    const int connection = accept(listener, nullptr, nullptr);
    if (connection < 0) fail("accept");
    if (write(connection, &id, sizeof id) != static_cast<ssize_t>(sizeof id)) fail("write");
    close(connection);
  }
  close(listener);
}

ncclUniqueId fetch(const Launch& launch) {
  const addrinfo* const address = resolve(launch);
  for (int attempt = 0; attempt < 600; ++attempt) {
    const int connection = socket(address->ai_family, SOCK_STREAM, 0);
    ncclUniqueId id{};
    if (connect(connection, address->ai_addr, address->ai_addrlen) == 0 &&
        recv(connection, &id, sizeof id, MSG_WAITALL) == static_cast<ssize_t>(sizeof id)) {
      close(connection);
      return id;
    }
    close(connection);  // rank 0 does not listen yet
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  fail("connect to rank 0");
}

}  // namespace

Launch read_launch() {
  Launch launch;
  launch.rank = number("RANK", 0);
  launch.ranks = number("WORLD_SIZE", 1);
  launch.local_rank = number("LOCAL_RANK", 0);
  if (const char* const address = std::getenv("MASTER_ADDR")) launch.master_address = address;
  if (const char* const port = std::getenv("MASTER_PORT")) launch.master_port = port;
  return launch;
}

ncclUniqueId exchange_id(const Launch& launch) {
  if (launch.rank != 0) return fetch(launch);
  ncclUniqueId id{};
  if (const ncclResult_t code = ncclGetUniqueId(&id); code != ncclSuccess) {
    std::fprintf(stderr, "ncclGetUniqueId: %s\n", ncclGetErrorString(code));
    std::exit(1);
  }
  serve(launch, id);
  return id;
}
