// Sends messages of 8 bytes through the plugin and the fake NIC, for a count of instructions:
//   valgrind --tool=callgrind --toggle-collect='message_loop*' build/bin/mesh_message_loop [BUFFERS_OF_A_RECEIVE]
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "plugins/mesh/net.h"

namespace {

namespace abi = plugfest::abi;
namespace net = mesh::net;

constexpr int kRounds = 1000;
constexpr std::size_t kBytes = 8;

void require(abi::Result result) {
  if (result != abi::Result::kSuccess) std::abort();
}

void ignore(int, unsigned long, const char*, int, const char*, ...) {}

struct ConnectedComms {
  void* send = nullptr;
  void* receive = nullptr;
};

ConnectedComms connect(void* context) {
  std::array<std::uint8_t, 128> handle;
  void* listener = nullptr;
  require(net::listen(context, 0, handle.data(), &listener));
  ConnectedComms made;
  while (made.send == nullptr || made.receive == nullptr) {
    if (made.send == nullptr) require(net::connect(context, 0, handle.data(), &made.send, nullptr));
    if (made.receive == nullptr) require(net::accept(listener, &made.receive, nullptr));
  }
  require(net::close_listen(listener));
  return made;
}

void complete(void* request) {
  for (int done = 0; done == 0;) {
    int sizes[8];
    require(net::test(request, &done, sizes));
  }
}

}  // namespace

// Sends `count` messages of one receive.
extern "C" [[gnu::noinline]] void message_loop(const ConnectedComms& connection, int count, void** data,
                                               void** receive_memory, void* send_memory) {
  std::array<std::size_t, 8> sizes;
  sizes.fill(kBytes);
  std::array<int, 8> tags = {0, 1, 2, 3, 4, 5, 6, 7};
  void* receive = nullptr;
  require(net::irecv(connection.receive, count, data, sizes.data(), tags.data(), receive_memory, nullptr, &receive));
  std::array<void*, 8> sends = {};
  for (int i = 0; i < count; ++i) {
    void*& send = sends[static_cast<std::size_t>(i)];
    require(net::isend(connection.send, data[0], kBytes, i, send_memory, nullptr, &send));
  }
  complete(receive);
  for (int i = 0; i < count; ++i) complete(sends[static_cast<std::size_t>(i)]);
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 1;
  if (count < 1 || count > 8) return 2;
  void* context = nullptr;
  require(net::init(&context, 0, nullptr, ignore, nullptr));
  const ConnectedComms connection = connect(context);
  std::array<std::uint64_t, 8> words = {};
  std::array<void*, 8> data, receive_memory;
  void *received = nullptr, *sent = nullptr;
  require(net::reg_mr(connection.receive, words.data(), sizeof words, abi::kPointerHost, &received));
  require(net::reg_mr(connection.send, words.data(), sizeof words, abi::kPointerHost, &sent));
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = &words[i];
  receive_memory.fill(received);
  for (int i = 0; i < kRounds; ++i) message_loop(connection, count, data.data(), receive_memory.data(), sent);
  std::printf("%d rounds\n", kRounds);
  return 0;
}
