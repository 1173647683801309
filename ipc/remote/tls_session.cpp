#include "ipc/remote/tls_session.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/core.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <climits>

#include "ipc/base/check.hpp"

namespace paceline::remote {
namespace {

constexpr std::string_view kIdentity = "paceline";
constexpr std::array<unsigned char, 2> kKeySuite = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256
constexpr std::size_t kReadBufferBytes = 128 * 1024;

std::string last_reason() {
    std::array<char, 256> text{};
    const unsigned long code = ERR_peek_last_error();
    if (code == 0) return "no reason given";
    ERR_error_string_n(code, text.data(), text.size());
    return text.data();
}

// ---- the key ----

int context_index() {
    static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
    return index;
}

/// The key as the session that both sides pretend to have had. nullptr if OpenSSL refuses.
SSL_SESSION* key_session(SSL* ssl) {
    const auto* context =
        static_cast<const TlsContext*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), context_index()));
    const SSL_CIPHER* suite = SSL_CIPHER_find(ssl, kKeySuite.data());
    SSL_SESSION* session = SSL_SESSION_new();
    if (session == nullptr || suite == nullptr) {
        SSL_SESSION_free(session);
        return nullptr;
    }
    const auto key = context->key().bytes();
    const bool made =
        SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                    key.size()) == 1 &&
        SSL_SESSION_set_cipher(session, suite) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
    if (made) return session;
    SSL_SESSION_free(session);
    return nullptr;
}

int offer_key(SSL* ssl,
              const EVP_MD* hash,
              const unsigned char** identity,
              std::size_t* identity_bytes,
              SSL_SESSION** session) {
    *session = nullptr;
    *identity = nullptr;
    *identity_bytes = 0;
    // After a HelloRetryRequest the hash is chosen; the key belongs to SHA-256.
    if (hash != nullptr && EVP_MD_get_type(hash) != NID_sha256) return 1;
    *session = key_session(ssl);
    if (*session == nullptr) return 0;
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *identity_bytes = kIdentity.size();
    return 1;
}

int find_key(SSL* ssl,
             const unsigned char* identity,
             std::size_t identity_bytes,
             SSL_SESSION** session) {
    *session = nullptr;
    if (identity_bytes != kIdentity.size() ||
        std::memcmp(identity, kIdentity.data(), identity_bytes) != 0) {
        return 1;  // goes on without a key, and fails for want of a certificate
    }
    *session = key_session(ssl);
    return *session != nullptr ? 1 : 0;
}

// ---- the socket: as OpenSSL's own, but without SIGPIPE ----

int descriptor_of(BIO* bio) {
    return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
}

int socket_write(BIO* bio, const char* bytes, int count) {
    BIO_clear_retry_flags(bio);
    ssize_t sent = -1;
    do {
        sent = ::send(descriptor_of(bio), bytes, static_cast<std::size_t>(count), MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno == EAGAIN) BIO_set_retry_write(bio);
    return static_cast<int>(sent);
}

int socket_read(BIO* bio, char* bytes, int count) {
    BIO_clear_retry_flags(bio);
    ssize_t got = -1;
    do {
        got = ::recv(descriptor_of(bio), bytes, static_cast<std::size_t>(count), 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) BIO_set_retry_read(bio);
    return static_cast<int>(got);
}

long socket_control(BIO*, int command, long, void*) {
    return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP ? 1 : 0;
}

int socket_make(BIO* bio) {
    BIO_set_init(bio, 1);
    return 1;
}

BIO_METHOD* socket_method() {
    static BIO_METHOD* const method = [] {
        BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
        PACE_CHECK(made != nullptr, "no memory for OpenSSL");
        BIO_meth_set_write(made, socket_write);
        BIO_meth_set_read(made, socket_read);
        BIO_meth_set_ctrl(made, socket_control);
        BIO_meth_set_create(made, socket_make);
        return made;
    }();
    return method;
}

/// What OpenSSL's reason says about the peer; nullptr: nothing that a user would know better.
const char* plain_reason(int reason) {
    switch (reason) {
        case SSL_R_BINDER_DOES_NOT_VERIFY:
        case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
        case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
        case SSL_R_DIGEST_CHECK_FAILED:
            return "it has another key";
        case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
        case SSL_R_NO_SHARED_CIPHER:
        case SSL_R_CERTIFICATE_VERIFY_FAILED:
        case SSL_R_NO_CERTIFICATE_ASSIGNED:
        case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
            return "it has no key";
        case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
            return "it accepts no key, or knows none";
        case SSL_R_UNSUPPORTED_PROTOCOL:
        case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
            return "it does not speak TLS 1.3";
        case SSL_R_WRONG_VERSION_NUMBER:
        case SSL_R_HTTP_REQUEST:
        case SSL_R_HTTPS_PROXY_REQUEST:
        case SSL_R_PACKET_LENGTH_TOO_LONG:
        case SSL_R_BAD_RECORD_TYPE:
        case SSL_R_RECORD_LENGTH_MISMATCH:
        case SSL_R_UNEXPECTED_MESSAGE:
        case SSL_R_NOT_ON_RECORD_BOUNDARY:
            return "its bytes are not TLS 1.3";
        default:
            return nullptr;
    }
}

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::make(const NodeKey& key, TlsSide side) {
    ERR_clear_error();
    std::shared_ptr<TlsContext> context{new TlsContext{key, side}};
    context->context_ =
        SSL_CTX_new(side == TlsSide::Client ? TLS_client_method() : TLS_server_method());
    SSL_CTX* ctx = context->context_;
    const bool made =
        ctx != nullptr && SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
        SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
        SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") == 1 &&
        SSL_CTX_set1_groups_list(ctx, "X25519:P-256") == 1 &&
        SSL_CTX_set_ex_data(ctx, context_index(), context.get()) == 1 &&
        SSL_CTX_set_num_tickets(ctx, 0) == 1 && SSL_CTX_set_max_early_data(ctx, 0) == 1 &&
        SSL_CTX_set_recv_max_early_data(ctx, 0) == 1;
    if (!made) {
        return Error{Errc::System,
                     "OpenSSL cannot do TLS 1.3 with a pre-shared key: " + last_reason()};
    }
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_clear_options(ctx, SSL_OP_ALLOW_NO_DHE_KEX);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // A message of TLS itself (new keys) must not end a read: what follows it may be buffered.
    SSL_CTX_set_mode(ctx, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_default_read_buffer_len(ctx, kReadBufferBytes);
    if (side == TlsSide::Client) {
        // No authority is trusted: a certificate, which stands for a peer without the key, fails.
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, nullptr);
        SSL_CTX_set_psk_use_session_callback(ctx, offer_key);
    } else {
        SSL_CTX_set_psk_find_session_callback(ctx, find_key);
    }
    return context;
}

TlsContext::~TlsContext() {
    SSL_CTX_free(context_);
}

TlsSession::TlsSession(std::shared_ptr<TlsContext> context,
                       int descriptor,
                       std::uint64_t key_bytes_max)
    : context_{std::move(context)}, key_bytes_max_{key_bytes_max}, ssl_{SSL_new(context_->get())} {
    BIO* bio = BIO_new(socket_method());
    PACE_CHECK(ssl_ != nullptr && bio != nullptr, "no memory for OpenSSL");
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)));
    SSL_set_bio(ssl_, bio, bio);
    if (context_->side() == TlsSide::Client) {
        SSL_set_connect_state(ssl_);
    } else {
        SSL_set_accept_state(ssl_);
    }
}

TlsSession::~TlsSession() {
    SSL_free(ssl_);
}

TlsSession::Step TlsSession::judge(int result) {
    const int system = errno;
    const int what = SSL_get_error(ssl_, result);
    if (what == SSL_ERROR_WANT_READ) return Step::WantRead;
    if (what == SSL_ERROR_WANT_WRITE) return Step::WantWrite;
    if (what == SSL_ERROR_ZERO_RETURN) return Step::Closed;
    if (what == SSL_ERROR_SYSCALL) {
        if (result == 0 || system == 0 || system == ECONNRESET || system == EPIPE)
            return Step::Closed;
        error_ = {Errc::PeerGone, std::strerror(system)};
        return Step::Failed;
    }
    const int reason = ERR_GET_REASON(ERR_peek_error());
    if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) return Step::Closed;
    const char* plain = proved_ ? nullptr : plain_reason(reason);
    error_ = {Errc::Protocol,
              plain != nullptr ? std::string{plain} : "TLS failed: " + last_reason()};
    return Step::Failed;
}

TlsSession::Step TlsSession::handshake() {
    ERR_clear_error();
    errno = 0;
    if (const int result = SSL_do_handshake(ssl_); result != 1) return judge(result);
    if (SSL_session_reused(ssl_) != 1 || SSL_get0_peer_certificate(ssl_) != nullptr) {
        error_ = {Errc::Protocol, "it has no key"};
        return Step::Failed;
    }
    proved_ = true;
    return Step::Done;
}

TlsSession::Step TlsSession::read(std::span<std::byte> bytes, std::size_t& count) {
    PACE_CHECK(proved_, "read before the handshake");
    count = 0;
    ERR_clear_error();
    errno = 0;
    const int result = SSL_read_ex(ssl_, bytes.data(), bytes.size(), &count);
    return result == 1 ? Step::Done : judge(result);
}

TlsSession::Step TlsSession::write(std::span<const std::byte> bytes, std::size_t& count) {
    PACE_CHECK(proved_, "written before the handshake");
    count = 0;
    ERR_clear_error();
    errno = 0;
    if (key_bytes_ >= key_bytes_max_ && !unfinished_) {
        if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return judge(0);
        key_bytes_ = 0;
    }
    const int result = SSL_write_ex(ssl_, bytes.data(), bytes.size(), &count);
    unfinished_ = result != 1;
    key_bytes_ += count;
    return result == 1 ? Step::Done : judge(result);
}

}  // namespace paceline::remote
