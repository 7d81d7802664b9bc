#include "plugins/mesh/relay/stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "plugins/mesh/log.h"

namespace mesh {

static_assert(std::endian::native == std::endian::little, "headers are sent as they are in memory");

// Sends bytes of a frame from byte `sent` on. Returns 0 if the whole frame is sent, EAGAIN if the socket's buffer is
// full, or another error number.
int FrameWriter::write(const Socket& socket, const FrameHeader& header, const std::byte* data, std::size_t& sent) {
  const std::size_t whole = sizeof header + header.length;
  while (sent < whole) {
    std::array<iovec, 2> parts = {};
    std::size_t count = 0;
    if (sent < sizeof header) {
      auto* bytes = reinterpret_cast<std::byte*>(const_cast<FrameHeader*>(&header));
      parts[count++] = {bytes + sent, sizeof header - sent};
    }
    const std::size_t offset = sent > sizeof header ? sent - sizeof header : 0;
    if (offset < header.length) parts[count++] = {const_cast<std::byte*>(data) + offset, header.length - offset};
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t wrote = sendmsg(socket.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (wrote >= 0)
      sent += static_cast<std::size_t>(wrote);
    else if (errno != EINTR)
      return errno;
  }
  return 0;
}

int FrameWriter::flush(const Socket& socket, const MayUse& may_read) {
  for (;;) {
    // Reports go first, because the peer needs them to continue. They can only be sent between frames.
    if (sent_ == 0 && (reporting_ || to_report_ > 0)) {
      if (!std::exchange(reporting_, true)) {
        report_ = {};
        report_.kind = FrameHeader::kDone;
        report_.count = std::exchange(to_report_, 0);
      }
      if (const int error = write(socket, report_, nullptr, report_sent_)) return error;
      reporting_ = false;
      report_sent_ = 0;
    }
    if (next_ == work_.size()) return 0;
    const Work& work = work_[next_];
    int error = EFAULT;
    // The memory of a write may be deregistered between two calls.
    const auto take = [&] { error = write(socket, work.header, work.data, sent_); };
    if (!work.header.is_write() || work.header.length == 0 || !work.copy.empty())
      take();
    else
      may_read(reinterpret_cast<std::uintptr_t>(work.data), work.header.length, work.local_key, take);
    if (error != 0) return error;
    sent_ = 0;
    ++next_;
  }
}

void FrameWriter::send_close(const Socket& socket, std::uint64_t messages_received) {
  // The frame that is sent in part cannot be finished if its memory is no longer valid; then the peer sees the end of
  // the connection without a Close.
  if (sent_ != 0 || report_sent_ != 0) return;
  FrameHeader close;
  close.kind = FrameHeader::kClose;
  close.address = messages_received;
  std::size_t sent = 0;
  write(socket, close, nullptr, sent);
}

std::optional<FrameWriter::Work> FrameWriter::take_done() {
  if (next_ == 0) return std::nullopt;
  --next_;
  Work done = std::move(work_.front());
  work_.pop_front();
  return done;
}

FrameReader::Progress FrameReader::read(const Socket& socket, const MayUse& may_write) {
  Progress progress;
  if (!in_frame_) {
    auto* const header = reinterpret_cast<std::byte*>(&header_);
    if (!take_bytes(socket, header, sizeof header_, header_got_, progress.failure)) return progress;
    if (!begin_frame(progress.failure)) return progress;
  }
  const std::size_t before = data_got_;
  // The memory of a write may be deregistered between two calls.
  const auto take = [&] {
    progress.complete = take_bytes(socket, target_, header_.length, data_got_, progress.failure);
  };
  if (!header_.is_write() || header_.length == 0)
    take();
  else if (!may_write(header_.address, header_.length, header_.key, take))
    progress.failure = "it wrote to memory that is not registered";
  progress.bytes = data_got_ - before + sizeof header_;
  if (progress.complete) {
    in_frame_ = false;
    header_got_ = 0;
  }
  return progress;
}

// Checks the header and finds the memory for the data. Returns false if the frame must wait or is invalid.
bool FrameReader::begin_frame(std::string& failure) {
  target_ = nullptr;
  if ((header_.is_send() || header_.kind == FrameHeader::kWriteWithValue) && receives_.empty()) return false;
  if (header_.is_send()) {
    if (header_.length > receives_.front().bytes) {
      failure = "it sent more than the receive has room for";
      return false;
    }
    target_ = receives_.front().data;
  } else if (header_.is_write()) {
    target_ = reinterpret_cast<std::byte*>(header_.address);
  } else if ((header_.kind != FrameHeader::kDone && header_.kind != FrameHeader::kClose) || header_.length != 0) {
    failure = "it sent an invalid frame";
    return false;
  }
  in_frame_ = true;
  data_got_ = 0;
  return true;
}

// Reads until `bytes` bytes are at `target`. Returns false if they have not arrived yet, or will not.
bool FrameReader::take_bytes(const Socket& socket, std::byte* target, std::size_t bytes, std::size_t& got,
                             std::string& failure) {
  while (got < bytes) {
    if (early_taken_ < early_.size()) {
      const std::size_t count = std::min(bytes - got, early_.size() - early_taken_);
      std::memcpy(target + got, early_.data() + early_taken_, count);
      early_taken_ += count;
      got += count;
      continue;
    }
    const ssize_t count = recv(socket.fd(), target + got, bytes - got, MSG_DONTWAIT);
    if (count > 0) {
      got += static_cast<std::size_t>(count);
    } else if (count == 0) {
      failure = "it closed the connection";
      return false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      failure = error_text(errno);
      return false;
    }
  }
  return true;
}

FrameReader::Receive FrameReader::take_receive() {
  const Receive oldest = receives_.front();
  receives_.pop_front();
  return oldest;
}

namespace {

// Bytes that one call of poll reads at most, so that it returns while a fast peer sends.
constexpr std::size_t kMaxBytesPerPoll = std::size_t{4} << 20;

}  // namespace

void Stream::start(Socket socket, std::vector<std::uint8_t> received, MayUse may_read, MayUse may_write) {
  socket_ = std::move(socket);
  reader_.start(std::move(received));
  may_read_ = std::move(may_read);
  may_write_ = std::move(may_write);
}

int Stream::post_send(const ibv_send_wr* first) {
  for (const ibv_send_wr* request = first; request != nullptr; request = request->next) {
    FrameWriter::Work work;
    work.id = request->wr_id;
    work.signaled = (request->send_flags & IBV_SEND_SIGNALED) != 0;
    switch (request->opcode) {
      case IBV_WR_SEND:
        work.header.kind = FrameHeader::kSend;
        break;
      case IBV_WR_SEND_WITH_IMM:
        work.header.kind = FrameHeader::kSendWithValue;
        break;
      case IBV_WR_RDMA_WRITE:
        work.header.kind = FrameHeader::kWrite;
        break;
      case IBV_WR_RDMA_WRITE_WITH_IMM:
        work.header.kind = FrameHeader::kWriteWithValue;
        break;
      default:
        return EINVAL;
    }
    work.opcode = work.header.is_send() ? IBV_WC_SEND : IBV_WC_RDMA_WRITE;
    if (stopped_) {
      complete(work.id, IBV_WC_WR_FLUSH_ERR, work.opcode);
      continue;
    }
    work.header.value = request->imm_data;
    work.header.address = request->wr.rdma.remote_addr;
    work.header.key = request->wr.rdma.rkey;
    if (request->num_sge > 0) {
      work.header.length = request->sg_list->length;
      work.data = reinterpret_cast<const std::byte*>(request->sg_list->addr);
      work.local_key = request->sg_list->lkey;
    }
    if ((request->send_flags & IBV_SEND_INLINE) != 0) {
      work.copy.assign(work.data, work.data + work.header.length);
      work.data = work.copy.data();
    }
    writer_.post(std::move(work));
  }
  flush();
  return 0;
}

int Stream::post_receive(const ibv_recv_wr* first) {
  for (const ibv_recv_wr* request = first; request != nullptr; request = request->next)
    if (stopped_)
      complete(request->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
    else if (request->num_sge > 0)
      reader_.post({request->wr_id, reinterpret_cast<std::byte*>(request->sg_list->addr), request->sg_list->length});
    else
      reader_.post({.id = request->wr_id});
  return 0;
}

int Stream::poll(std::span<ibv_wc> completions) {
  if (!stopped_) {
    read(kMaxBytesPerPoll);
    flush();
  }
  std::size_t taken = 0;
  while (taken < completions.size() && !completions_.empty()) {
    completions[taken++] = completions_.front();
    completions_.pop_front();
  }
  return static_cast<int>(taken);
}

void Stream::stop(ibv_wc_status status) {
  if (std::exchange(stopped_, true)) return;
  for (const FrameWriter::Work& work : writer_.work()) complete(work.id, status, work.opcode);
  for (const FrameReader::Receive& receive : reader_.receives()) complete(receive.id, status, IBV_WC_RECV);
}

void Stream::send_close(std::uint64_t messages_received) {
  if (!socket_) return;
  writer_.send_close(socket_, messages_received);
  shutdown(socket_.fd(), SHUT_WR);
}

void Stream::flush() {
  if (!socket_ || stopped_ || ended_) return;
  const int error = writer_.flush(socket_, may_read_);
  if (error == 0 || error == EAGAIN) return;
  if (error == EFAULT) return stop(IBV_WC_LOC_PROT_ERR);
  read(SIZE_MAX);  // what arrived before the error, for example a Close
  if (!ended_) end(error_text(error));
}

void Stream::read(std::size_t budget) {
  while (socket_ && !stopped_ && !ended_ && budget > 0) {
    const FrameReader::Progress progress = reader_.read(socket_, may_write_);
    if (!progress.failure.empty()) return end(progress.failure);
    if (!progress.complete) return;
    budget -= std::min(budget, progress.bytes);
    end_frame(reader_.header());
  }
}

void Stream::end_frame(const FrameHeader& header) {
  if (header.kind == FrameHeader::kClose) {
    received_by_peer_ = header.address;
    return end("it closed the connection");
  }
  if (header.kind == FrameHeader::kDone) {
    for (std::uint32_t i = 0; i < header.count; ++i) {
      const std::optional<FrameWriter::Work> done = writer_.take_done();
      if (!done) return end("it reported work that was not sent");
      if (done->signaled) complete(done->id, IBV_WC_SUCCESS, done->opcode);
    }
    return;
  }
  writer_.report_one();
  if (header.kind == FrameHeader::kWrite) return;
  complete(reader_.take_receive().id, IBV_WC_SUCCESS,
           header.kind == FrameHeader::kWriteWithValue ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
           static_cast<std::uint32_t>(header.length), header.value, header.kind != FrameHeader::kSend);
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
