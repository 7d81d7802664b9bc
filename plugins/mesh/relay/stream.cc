// Frames of work requests over TCP.
#include "plugins/mesh/relay/stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "plugins/mesh/failure.h"

namespace mesh {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are sent as they are in memory");

// Bytes that one call of poll reads at most, so that it returns while a fast peer sends.
constexpr std::size_t kMostBytesPerPoll = std::size_t{4} << 20;

}  // namespace

void Stream::start(Socket socket, std::vector<std::uint8_t> received, MayWrite may_write) {
  socket_ = std::move(socket);
  early_ = std::move(received);
  may_write_ = std::move(may_write);
}

int Stream::post_send(const ibv_send_wr* first) {
  for (const ibv_send_wr* each = first; each != nullptr; each = each->next) {
    Work work;
    work.id = each->wr_id;
    work.signaled = (each->send_flags & IBV_SEND_SIGNALED) != 0;
    switch (each->opcode) {
      case IBV_WR_SEND:
        work.header.kind = kSend;
        break;
      case IBV_WR_SEND_WITH_IMM:
        work.header.kind = kSendWithValue;
        break;
      case IBV_WR_RDMA_WRITE:
        work.header.kind = kWrite;
        break;
      case IBV_WR_RDMA_WRITE_WITH_IMM:
        work.header.kind = kWriteWithValue;
        break;
      default:
        return EINVAL;
    }
    work.opcode = work.header.kind <= kSendWithValue ? IBV_WC_SEND : IBV_WC_RDMA_WRITE;
    if (stopped_) {
      complete(work.id, IBV_WC_WR_FLUSH_ERR, work.opcode);
      continue;
    }
    work.header.value = each->imm_data;
    work.header.address = each->wr.rdma.remote_addr;
    work.header.key = each->wr.rdma.rkey;
    if (each->num_sge > 0) {
      work.header.length = each->sg_list->length;
      work.data = reinterpret_cast<const std::byte*>(each->sg_list->addr);
    }
    if ((each->send_flags & IBV_SEND_INLINE) != 0) {
      work.copy.assign(work.data, work.data + work.header.length);
      work.data = work.copy.data();
    }
    work_.push_back(std::move(work));
  }
  flush();
  return 0;
}

int Stream::post_receive(const ibv_recv_wr* first) {
  for (const ibv_recv_wr* each = first; each != nullptr; each = each->next) {
    if (stopped_) {
      complete(each->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
    } else if (each->num_sge > 0) {
      receives_.push_back({each->wr_id, reinterpret_cast<std::byte*>(each->sg_list->addr), each->sg_list->length});
    } else {
      receives_.push_back({.id = each->wr_id});
    }
  }
  return 0;
}

int Stream::poll(std::span<ibv_wc> completions) {
  if (!stopped_) {
    read();
    flush();
  }
  std::size_t taken = 0;
  while (taken < completions.size() && !completions_.empty()) {
    completions[taken++] = completions_.front();
    completions_.pop_front();
  }
  return static_cast<int>(taken);
}

void Stream::stop() {
  if (std::exchange(stopped_, true)) return;
  for (const Work& each : work_) complete(each.id, IBV_WC_WR_FLUSH_ERR, each.opcode);
  for (const Receive& each : receives_) complete(each.id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
  receives_.clear();
  in_frame_ = false;
}

void Stream::say_goodbye(std::uint64_t messages_received) {
  // The frame that is sent in part cannot be finished if its memory is no longer valid; then the peer sees the end of
  // the connection without a goodbye.
  if (socket_ && sent_ == 0 && report_sent_ == 0) {
    Header goodbye;
    goodbye.kind = kGoodbye;
    goodbye.address = messages_received;
    std::size_t sent = 0;
    write(goodbye, nullptr, sent);
  }
  if (socket_) shutdown(socket_.fd(), SHUT_WR);
}

// Sends bytes of a frame from byte `sent` on. Returns whether the whole frame is sent.
bool Stream::write(const Header& header, const std::byte* data, std::size_t& sent) {
  const std::size_t whole = kHeaderBytes + header.length;
  while (sent < whole) {
    std::array<iovec, 2> parts = {};
    std::size_t count = 0;
    if (sent < kHeaderBytes) {
      auto* bytes = reinterpret_cast<std::byte*>(const_cast<Header*>(&header));
      parts[count++] = {bytes + sent, kHeaderBytes - sent};
    }
    const std::size_t offset = sent > kHeaderBytes ? sent - kHeaderBytes : 0;
    if (offset < header.length) parts[count++] = {const_cast<std::byte*>(data) + offset, header.length - offset};
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t wrote = sendmsg(socket_.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (wrote > 0) {
      sent += static_cast<std::size_t>(wrote);
    } else if (errno != EINTR) {
      return false;  // the socket's buffer is full, or read() will see the error
    }
  }
  return true;
}

void Stream::flush() {
  if (!socket_ || stopped_ || ended_) return;
  for (;;) {
    // Reports first: the peer needs them to go on. They can only be sent between frames.
    if (sent_ == 0 && (reporting_ || to_report_ > 0)) {
      if (!reporting_) {
        reporting_ = true;
        report_ = {};
        report_.kind = kDone;
        report_.count = std::exchange(to_report_, 0);
      }
      if (!write(report_, nullptr, report_sent_)) return;
      reporting_ = false;
      report_sent_ = 0;
    }
    if (next_work_ == work_.size()) return;
    const Work& work = work_[next_work_];
    if (!write(work.header, work.data, sent_)) return;
    sent_ = 0;
    ++next_work_;
  }
}

void Stream::read() {
  std::size_t budget = kMostBytesPerPoll;
  while (socket_ && !stopped_ && !ended_ && budget > 0) {
    if (!in_frame_) {
      if (!take_bytes(reinterpret_cast<std::byte*>(&incoming_), kHeaderBytes, header_got_)) return;
      if (!begin_frame()) return;
    }
    const std::size_t before = data_got_;
    // The memory of a write may be deregistered between two calls.
    bool complete = false;
    const auto take = [&] { complete = take_bytes(target_, incoming_.length, data_got_); };
    const bool writes = (incoming_.kind == kWrite || incoming_.kind == kWriteWithValue) && incoming_.length > 0;
    if (!writes) {
      take();
    } else if (!may_write_(incoming_.address, incoming_.length, incoming_.key, take)) {
      return end("it wrote to memory that is not registered");
    }
    if (!complete) return;
    budget -= std::min(budget, data_got_ - before + kHeaderBytes);
    end_frame();
  }
}

// Reads until `bytes` bytes are at `target`. Returns false if they have not arrived yet.
bool Stream::take_bytes(std::byte* target, std::size_t bytes, std::size_t& got) {
  while (got < bytes) {
    if (early_taken_ < early_.size()) {
      const std::size_t count = std::min(bytes - got, early_.size() - early_taken_);
      std::memcpy(target + got, early_.data() + early_taken_, count);
      early_taken_ += count;
      got += count;
      continue;
    }
    const ssize_t count = recv(socket_.fd(), target + got, bytes - got, MSG_DONTWAIT);
    if (count > 0) {
      got += static_cast<std::size_t>(count);
    } else if (count == 0) {
      end("it closed the connection");
      return false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      end(error_text(errno));
      return false;
    }
  }
  return true;
}

// Checks the header and finds the place of the data. Returns false if the frame must wait or is invalid.
bool Stream::begin_frame() {
  const bool sends = incoming_.kind == kSend || incoming_.kind == kSendWithValue;
  const bool writes = incoming_.kind == kWrite || incoming_.kind == kWriteWithValue;
  target_ = nullptr;
  if (sends || incoming_.kind == kWriteWithValue) {
    if (receives_.empty()) return false;
  }
  if (sends) {
    if (incoming_.length > receives_.front().bytes) {
      end("it sent more than the receive has room for");
      return false;
    }
    target_ = receives_.front().data;
  } else if (writes) {
    target_ = reinterpret_cast<std::byte*>(incoming_.address);
  } else if ((incoming_.kind != kDone && incoming_.kind != kGoodbye) || incoming_.length != 0) {
    end("it sent an invalid frame");
    return false;
  }
  in_frame_ = true;
  data_got_ = 0;
  return true;
}

void Stream::end_frame() {
  in_frame_ = false;
  header_got_ = 0;
  data_got_ = 0;
  if (incoming_.kind == kGoodbye) {
    goodbye_ = incoming_.address;
    return end("it closed the connection");
  }
  if (incoming_.kind == kDone) {
    for (std::uint32_t i = 0; i < incoming_.count; ++i) {
      if (next_work_ == 0) return end("it reported work that was not sent");
      if (work_.front().signaled) complete(work_.front().id, IBV_WC_SUCCESS, work_.front().opcode);
      work_.pop_front();
      --next_work_;
    }
    return;
  }
  ++to_report_;
  if (incoming_.kind == kWrite) return;
  const bool has_value = incoming_.kind != kSend;
  complete(receives_.front().id, IBV_WC_SUCCESS,
           incoming_.kind == kWriteWithValue ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
           static_cast<std::uint32_t>(incoming_.length), incoming_.value, has_value);
  receives_.pop_front();
}

void Stream::complete(std::uint64_t id, ibv_wc_status status, ibv_wc_opcode opcode, std::uint32_t bytes,
                      std::uint32_t value, bool has_value) {
  ibv_wc completion = {};
  completion.wr_id = id;
  completion.status = status;
  completion.opcode = opcode;
  completion.byte_len = bytes;
  completion.imm_data = value;
  completion.wc_flags = has_value ? IBV_WC_WITH_IMM : 0;
  completions_.push_back(completion);
}

void Stream::end(const std::string& reason) {
  ended_ = true;
  end_reason_ = reason;
}

}  // namespace mesh
