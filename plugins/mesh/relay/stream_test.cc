#include "plugins/mesh/relay/stream.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace mesh {
namespace {

constexpr std::uint32_t kKey = 7, kLocalKey = 8;
constexpr auto kNone = [](auto, auto, auto, const auto&) { return false; };

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() { start(); }

  // Connects `receiver_` to `far_`.
  void start() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    far_ = Socket(ends[0]);
    receiver_ = Stream();
    receiver_.start(Socket(ends[1]), {}, kNone, [this](auto address, auto bytes, auto key, const auto& use) {
      const auto begin = reinterpret_cast<std::uintptr_t>(memory_.data());
      const bool may = key == kKey && address >= begin && address + bytes <= begin + memory_.size();
      if (may) use();
      return may;
    });
  }

  // Makes `sender_` the other end.
  void start_sender() {
    const auto may_read = [this](auto, auto, auto key, const auto& use) {
      const bool may = registered_ && key == kLocalKey;
      if (may) use();
      return may;
    };
    sender_.start(std::move(far_), {}, may_read, kNone);
  }

  void post_receive(std::uint64_t id, std::byte* data = nullptr, std::uint32_t bytes = 0) {
    ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(data), .length = bytes, .lkey = 0};
    ibv_recv_wr receive = {};
    receive.wr_id = id;
    receive.sg_list = &entry;
    receive.num_sge = data != nullptr ? 1 : 0;
    EXPECT_EQ(receiver_.post_receive(&receive), 0);
  }
  void post_send(std::uint64_t id, ibv_wr_opcode opcode, const std::vector<std::byte>& data, std::size_t offset = 0,
                 unsigned flags = IBV_SEND_SIGNALED) {
    ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(data.data()),
                     .length = static_cast<std::uint32_t>(data.size()),
                     .lkey = kLocalKey};
    ibv_send_wr send = {};
    send.wr_id = id;
    send.sg_list = &entry;
    send.num_sge = 1;
    send.opcode = opcode;
    send.send_flags = flags;
    send.imm_data = 0x1234;
    send.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(memory_.data()) + offset;
    send.wr.rdma.rkey = kKey;
    EXPECT_EQ(sender_.post_send(&send), 0);
  }
  static std::vector<ibv_wc> poll(Stream& stream) {
    std::vector<ibv_wc> completions(16);
    completions.resize(static_cast<std::size_t>(stream.poll(completions)));
    return completions;
  }
  // The error of `receiver_` for these bytes.
  std::string answer_to(const std::vector<std::uint8_t>& bytes) {
    EXPECT_EQ(send(far_.fd(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    poll(receiver_);
    return receiver_.ended() ? receiver_.end_reason() : "waits";
  }
  static std::vector<std::uint8_t> header(std::uint8_t kind, std::uint64_t length, std::uint64_t address = 0,
                                          std::uint32_t key = kKey, std::uint32_t count = 0) {
    std::vector<std::uint8_t> bytes(32);
    bytes[0] = kind;
    std::memcpy(&bytes[8], &length, 8);
    std::memcpy(&bytes[16], &address, 8);
    std::memcpy(&bytes[24], &key, 4);
    std::memcpy(&bytes[28], &count, 4);
    return bytes;
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(1 << 20);
  Socket far_;
  bool registered_ = true;  ///< whether the sender's memory is registered
  Stream sender_, receiver_;
};

TEST_F(StreamTest, CompletesWorkInOrderWhenThePeerHasIt) {
  start_sender();
  std::vector<std::byte> place(16), message(5, std::byte{3}), data(1 << 20, std::byte{4});
  post_receive(1, place.data(), 16);
  post_receive(2);
  post_send(10, IBV_WR_SEND, message, 0, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  post_send(11, IBV_WR_RDMA_WRITE, data, 0, 0);
  post_send(12, IBV_WR_RDMA_WRITE_WITH_IMM, message, 100);
  EXPECT_TRUE(poll(sender_).empty()) << "the peer has not read";
  std::vector<ibv_wc> received, sent;
  for (int i = 0; i < 1000 && sent.size() < 2; ++i) {  // the socket's buffer is smaller than the data
    for (const ibv_wc& completion : poll(receiver_)) received.push_back(completion);
    for (const ibv_wc& completion : poll(sender_)) sent.push_back(completion);
  }
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].opcode, IBV_WC_RECV);
  EXPECT_EQ(received[0].byte_len, 5u);
  EXPECT_EQ(received[1].wr_id, 2u);
  EXPECT_EQ(received[1].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received[1].imm_data, 0x1234u);
  ASSERT_EQ(sent.size(), 2u) << "work without a signal has no completion";
  EXPECT_EQ(sent[0].wr_id, 10u);
  EXPECT_EQ(sent[1].wr_id, 12u);
  EXPECT_EQ(place[4], std::byte{3});
  EXPECT_EQ(memory_[99], std::byte{4});
  EXPECT_EQ(memory_[104], std::byte{3});
}

TEST_F(StreamTest, WaitsForAReceive) {
  start_sender();
  post_send(1, IBV_WR_SEND_WITH_IMM, {});
  EXPECT_TRUE(poll(receiver_).empty());
  EXPECT_FALSE(receiver_.ended());
  post_receive(5);
  const std::vector<ibv_wc> received = poll(receiver_);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
}

TEST_F(StreamTest, FlushesWorkWhenItStops) {
  start_sender();
  post_send(1, IBV_WR_RDMA_WRITE, memory_);
  sender_.stop();
  post_receive(3);
  receiver_.stop();
  EXPECT_EQ(poll(sender_).at(0).status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(poll(receiver_).at(0).status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(StreamTest, WorkFailsIfItsMemoryIsDeregisteredBeforeItIsSent) {
  start_sender();
  post_send(1, IBV_WR_RDMA_WRITE_WITH_IMM, memory_);  // the socket's buffer is smaller
  EXPECT_TRUE(poll(sender_).empty());
  registered_ = false;
  EXPECT_EQ(poll(sender_).at(0).status, IBV_WC_LOC_PROT_ERR);
  post_send(2, IBV_WR_RDMA_WRITE_WITH_IMM, memory_);
  EXPECT_EQ(poll(sender_).at(0).status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(StreamTest, WorkFailsIfItsMemoryIsNotMapped) {
  constexpr std::size_t kPage = 4096;
  void* page = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  start_sender();
  ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(page), .length = kPage, .lkey = kLocalKey};
  ibv_send_wr send = {};
  send.sg_list = &entry;
  send.num_sge = 1;
  send.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  EXPECT_EQ(sender_.post_send(&send), 0);
  EXPECT_EQ(poll(sender_).at(0).status, IBV_WC_LOC_PROT_ERR);
  munmap(page, kPage);
}

TEST_F(StreamTest, EndsAfterWhatHasArrivedIfItCannotSend) {
  receiver_.send_close(42);
  const int fd = far_.fd();
  start_sender();
  shutdown(fd, SHUT_WR);
  post_send(1, IBV_WR_SEND_WITH_IMM, {});
  EXPECT_TRUE(sender_.ended());
  EXPECT_EQ(sender_.received_by_peer(), 42u);

  start();
  sender_ = Stream();
  const int other = far_.fd();
  start_sender();
  shutdown(other, SHUT_WR);
  post_send(1, IBV_WR_SEND_WITH_IMM, {});
  EXPECT_EQ(sender_.end_reason(), "Broken pipe");
}

TEST_F(StreamTest, CloseSaysWhatThePeerReceived) {
  start_sender();
  sender_.send_close(42);
  poll(receiver_);
  EXPECT_TRUE(receiver_.ended());
  EXPECT_EQ(receiver_.received_by_peer(), 42u);
}

TEST_F(StreamTest, EndsWithoutCloseIfThePeerDies) {
  far_ = Socket();
  poll(receiver_);
  EXPECT_TRUE(receiver_.ended());
  EXPECT_EQ(receiver_.received_by_peer(), std::nullopt);
}

TEST_F(StreamTest, RefusesInvalidFrames) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory_.data());
  const std::string invalid = "it sent an invalid frame", not_registered = "it wrote to memory that is not registered";
  for (const auto& [frame, answer] : {std::pair(header(77, 0), invalid),  // of an unknown kind
                                      {header(5, 1), invalid},            // a report with data
                                      {header(5, 0, 0, 0, 1), "it reported work that was not sent"},
                                      {header(3, 8, begin + memory_.size() - 7), not_registered},
                                      {header(3, 8, begin, kKey + 1), not_registered}}) {
    start();
    EXPECT_EQ(answer_to(frame), answer);
  }
}

TEST_F(StreamTest, RefusesSendsLargerThanTheReceive) {
  std::vector<std::byte> place(16);
  post_receive(1, place.data(), 16);
  EXPECT_EQ(answer_to(header(1, 17)), "it sent more than the receive has room for");
}

TEST_F(StreamTest, WaitsForTheRestOfATruncatedFrame) {
  std::vector<std::uint8_t> bytes = header(5, 0);
  bytes.pop_back();
  EXPECT_EQ(answer_to(bytes), "waits");
}

}  // namespace
}  // namespace mesh
