// TlsContext and TlsSession: TLS 1.3 with a pre-shared key over a non-blocking socket.
//
// One suite of rules for both sides: TLS 1.3 alone, the key as an external PSK, always with an
// ephemeral key exchange (psk_dhe_ke; X25519 or P-256), AES-128-GCM or ChaCha20-Poly1305. No
// certificates, tickets, resumption or early data. A handshake that did not use the key fails, on
// both sides. Each side takes new keys for what it sends after a number of bytes, because AES-GCM
// is not safe for any number of records. Nothing waits: a call says what it waits for. One thread
// per session; a context may be shared by the sessions of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ipc/base/result.hpp"
#include "ipc/remote/node_key.hpp"

struct ssl_ctx_st;
struct ssl_st;

namespace paceline::remote {

enum class TlsSide : std::uint8_t { Client, Server };

class TlsContext {
public:
    /// Errc::System if OpenSSL lacks what is needed.
    [[nodiscard]] static Result<std::shared_ptr<TlsContext>> make(const NodeKey& key, TlsSide side);
    TlsContext(const TlsContext&) = delete;
    TlsContext& operator=(const TlsContext&) = delete;
    ~TlsContext();

    [[nodiscard]] ssl_ctx_st* get() const { return context_; }
    [[nodiscard]] TlsSide side() const { return side_; }
    [[nodiscard]] const NodeKey& key() const { return key_; }

private:
    TlsContext(const NodeKey& key, TlsSide side) : key_{key}, side_{side} {}
    NodeKey key_;
    TlsSide side_;
    ssl_ctx_st* context_ = nullptr;
};

class TlsSession {
public:
    enum class Step : std::uint8_t {
        Done,       // the handshake is over; `count` bytes were read or written
        WantRead,   // call again when the socket is readable
        WantWrite,  // call again when it is writable, with the same bytes
        Closed,     // the peer has closed the connection
        Failed,     // error() says why
    };

    /// `descriptor` is a connected non-blocking socket that outlives the session.
    TlsSession(std::shared_ptr<TlsContext> context, int descriptor, std::uint64_t key_bytes_max);
    TlsSession(const TlsSession&) = delete;
    TlsSession& operator=(const TlsSession&) = delete;
    ~TlsSession();

    [[nodiscard]] Step handshake();
    [[nodiscard]] Step read(std::span<std::byte> bytes, std::size_t& count);
    [[nodiscard]] Step write(std::span<const std::byte> bytes, std::size_t& count);
    /// After Failed. Errc::Protocol: the peer has another key, none, or does not speak TLS 1.3.
    [[nodiscard]] const Error& error() const { return error_; }

private:
    [[nodiscard]] Step judge(int result);
    std::shared_ptr<TlsContext> context_;
    std::uint64_t key_bytes_max_;
    ssl_st* ssl_ = nullptr;
    std::uint64_t key_bytes_ = 0;  // written with the present keys
    bool unfinished_ = false;      // a write is to be repeated: no new keys in between
    bool proved_ = false;
    Error error_;
};

}  // namespace paceline::remote
