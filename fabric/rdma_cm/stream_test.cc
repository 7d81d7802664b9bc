#include "fabric/rdma_cm/stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <memory>
#include <mutex>

#include "fabric/rdma_cm/testing.h"
#include "fabric/system/descriptor_passing.h"

namespace plugfest::rdma_cm {
namespace {

// A stream whose peer is a plain socket. Each promise is for the first callback of its kind.
class StreamTest : public testing::Test {
 protected:
  StreamTest() {
    auto [own, peer] = make_socket_pair("make a connection");
    peer_ = std::move(peer);
    const std::lock_guard guard(polling_.lock);
    stream_ = std::make_unique<Stream>(polling_.poller, std::move(own), callbacks());
  }
  ~StreamTest() override {
    const std::lock_guard guard(polling_.lock);
    stream_.reset();
  }

  Stream::Callbacks callbacks() {
    return {.connected = [] {},
            .received = [this](const Message& message) { received_.set_value(message); },
            .ended = [this](int error) { ended_.set_value(error); }};
  }
  void write(const void* bytes, std::size_t size) {
    ASSERT_EQ(::write(peer_.get(), bytes, size), static_cast<ssize_t>(size));
  }

  Polling& polling_ = *new Polling;
  Descriptor peer_;
  std::unique_ptr<Stream> stream_;
  std::promise<Message> received_;
  std::promise<int> ended_;
};

TEST_F(StreamTest, DeliversAMessageThatArrivesInPieces) {
  const MessageBytes bytes = encode({.type = MessageType::kReply, .port_space = 0x0106, .qp_number = 7, .mtu = 3});
  for (std::size_t sent = 0; sent < bytes.size(); sent += 60) write(bytes.data() + sent, 60);
  EXPECT_EQ(received_.get_future().get().qp_number, 7u);
}

TEST_F(StreamTest, EndsWithAnErrorAfterAnInvalidMessage) {
  const MessageBytes zeros = {};
  write(zeros.data(), zeros.size());
  EXPECT_EQ(ended_.get_future().get(), EPROTO);
}

TEST_F(StreamTest, EndsWithoutAnErrorWhenThePeerCloses) {
  peer_ = Descriptor();
  EXPECT_EQ(ended_.get_future().get(), 0);
}

TEST_F(StreamTest, EndsWithoutAMessageWhenThePeerClosesInTheMiddleOfOne) {
  write("PFCM", 4);
  peer_ = Descriptor();
  EXPECT_EQ(ended_.get_future().get(), 0);
  EXPECT_EQ(received_.get_future().wait_for(std::chrono::seconds(0)), std::future_status::timeout);
}

TEST_F(StreamTest, ReportsThatTheConnectionWasRefused) {
  const roce::Address nobody = own_loopback_address(99);
  std::promise<int> ended;
  std::unique_ptr<Stream> connecting;
  {
    const std::lock_guard guard(polling_.lock);
    connecting =
        Stream::connect_to(polling_.poller, nobody, nobody, 0,
                           {.connected = {}, .received = {}, .ended = [&](int error) { ended.set_value(error); }});
    ASSERT_TRUE(connecting);
  }
  EXPECT_EQ(ended.get_future().get(), ECONNREFUSED);
  const std::lock_guard guard(polling_.lock);
  connecting.reset();
}

}  // namespace
}  // namespace plugfest::rdma_cm
