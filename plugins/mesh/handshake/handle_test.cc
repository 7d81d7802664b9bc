#include <gtest/gtest.h>

#include <array>

#include "plugins/mesh/handshake/handle.h"
#include "plugins/mesh/handshake/message.h"
#include "plugins/mesh/log.h"

namespace mesh {

namespace {

using Bytes = std::array<std::uint8_t, kHandleBytes>;

PeerAddress peer(const std::string& address, int prefix, bool of_listening_device = false) {
  return {{parse_address(address), prefix}, of_listening_device};
}

Handle handle_with(std::vector<PeerAddress> addresses) {
  return {.port = 40123, .secret = Secret::make(), .addresses = addresses, .address_count = addresses.size()};
}

Bytes bytes_of(const Handle& handle) {
  Bytes bytes;
  bytes.fill(0xff);
  encode_handle(handle, bytes);
  return bytes;
}

std::string refusal_of(const Bytes& bytes) {
  try {
    decode_handle(bytes);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), Result::kInvalidArgument);
    return failure.what();
  }
  return "accepted";
}

TEST(HandleTest, DecodesWhatItEncodes) {
  const Handle handle = handle_with({peer("192.168.100.2", 24, true), peer("10.0.0.1", 30), peer("fd00::2", 64)});
  const Handle back = decode_handle(bytes_of(handle));
  EXPECT_EQ(back.port, handle.port);
  EXPECT_EQ(back.secret, handle.secret);
  EXPECT_EQ(back.addresses, handle.addresses);
  EXPECT_FALSE(back.is_truncated());
}

TEST(HandleTest, PutsIpv4FirstAndTheListeningDeviceBeforeOthers) {
  const Handle back = decode_handle(bytes_of(
      handle_with({peer("fd00::1", 64, true), peer("10.0.0.1", 30), peer("fd00::2", 64), peer("10.0.0.5", 30, true)})));
  const std::vector<PeerAddress> order = {peer("10.0.0.5", 30, true), peer("10.0.0.1", 30), peer("fd00::1", 64, true),
                                          peer("fd00::2", 64)};
  EXPECT_EQ(back.addresses, order);
}

TEST(HandleTest, ReportsThatAddressesAreMissing) {
  std::vector<PeerAddress> many;
  for (int i = 0; i < 40; ++i) many.push_back(peer("10.0." + std::to_string(i) + ".1", 30, i == 39));
  const Handle back = decode_handle(bytes_of(handle_with(many)));
  EXPECT_EQ(back.addresses.size(), 17u);
  EXPECT_EQ(back.addresses.front(), many.back());
  EXPECT_EQ(back.address_count, 40u);
  EXPECT_TRUE(back.is_truncated());
}

TEST(HandleTest, WritesEveryByte) {
  const Handle handle = handle_with({peer("10.0.0.1", 30)});
  Bytes zeroed = {};
  encode_handle(handle, zeroed);
  EXPECT_EQ(bytes_of(handle), zeroed);
}

TEST(HandleTest, AttemptNumberChangesNothingElse) {
  const Handle handle = handle_with({peer("10.0.0.1", 30)});
  Bytes bytes = bytes_of(handle);
  EXPECT_EQ(read_attempt(bytes), 0u);
  write_attempt(bytes, 0x0123456789abcdef);
  EXPECT_EQ(read_attempt(bytes), 0x0123456789abcdefu);
  EXPECT_EQ(decode_handle(bytes).addresses, handle.addresses);
  write_attempt(bytes, 0);
  EXPECT_EQ(bytes, bytes_of(handle));
}

TEST(HandleTest, RefusesInvalidHandles) {
  EXPECT_EQ(refusal_of({}),
            "connect: this plugin did not make the handle (wrong magic): use the same plugin on all ranks");
  struct Change {
    std::size_t place;
    std::uint8_t byte;
    const char* why;
  };
  for (const auto& [place, byte, why] : {Change{4, 9, "(version 9, expected 2)"},
                                         {5, 255, "(too many addresses)"},
                                         {7, 0, "(too many addresses)"},  // the listener has fewer than the handle
                                         {44, 33, "(invalid prefix length)"}}) {
    Bytes bytes = bytes_of(handle_with({peer("10.0.0.1", 30)}));
    bytes[place] = byte;
    EXPECT_NE(refusal_of(bytes).find(why), std::string::npos) << why;
  }
  EXPECT_NE(refusal_of(bytes_of(handle_with({}))).find("(no address)"), std::string::npos);
}

// Expected value: Python's hmac.new(bytes(range(16)), bytes(16) + b'abc', 'sha256').digest()[:16].
TEST(SecretTest, ProvesByHmacSha256) {
  const Secret secret = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
  const std::array<std::uint8_t, 3> content = {'a', 'b', 'c'};
  const Proof expected = {0xfc, 0x2a, 0x7a, 0x7f, 0x9d, 0x3e, 0x36, 0x9c,
                          0x22, 0x79, 0x80, 0x46, 0xc2, 0xd6, 0x7e, 0xcf};
  EXPECT_EQ(secret.prove(Nonce{}, content), expected);
}

TEST(SecretTest, ProofDependsOnSecretNonceAndEveryByteOfTheMessage) {
  const Secret secret = Secret::make();
  const Nonce nonce = make_nonce();
  const Hello hello =
      with_proof(Hello{.listener = secret.listener_id(), .nonce = nonce, .lanes = {LaneOffer{}}}, secret, nonce);
  EXPECT_TRUE(is_proven(hello, secret, nonce));
  EXPECT_FALSE(is_proven(hello, Secret::make(), nonce));
  EXPECT_FALSE(is_proven(hello, secret, make_nonce()));
  Hello other = hello;
  other.lanes.front().endpoint.queue_pair ^= 1;
  EXPECT_FALSE(is_proven(other, secret, nonce));
  other = hello;
  other.proof.back() ^= 1;
  EXPECT_FALSE(is_proven(other, secret, nonce));
}

// An Ask and a Hello of the same peer have different types, and so different proofs.
TEST(SecretTest, ProofOfOneMessageIsNoProofOfAnother) {
  const Secret secret = Secret::make();
  const Nonce nonce = make_nonce();
  const Ask ask = with_proof(Ask{.listener = secret.listener_id(), .nonce = nonce}, secret, nonce);
  const Hello hello = {.listener = ask.listener, .nonce = nonce, .lanes = {}, .proof = ask.proof};
  EXPECT_FALSE(is_proven(hello, secret, nonce));
}

TEST(SecretTest, ListenerIdDoesNotRevealTheSecret) {
  const Secret secret = Secret::make();
  EXPECT_NE(secret.listener_id(), secret.bytes);
  EXPECT_EQ(secret.listener_id(), secret.listener_id());
}

}  // namespace

}  // namespace mesh
