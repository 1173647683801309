#include "launch/grammar/helper_frames.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <type_traits>
#include <unistd.h>

namespace paceline {
namespace {

class FrameWriter {
public:
    template <class T>
    void number(T value) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void text(std::string_view text) {
        number(static_cast<std::uint32_t>(text.size()));
        bytes.append(text);
    }
    std::string bytes;
};

/// Past the end everything is 0 and empty, and ok() is false.
class FrameReader {
public:
    explicit FrameReader(std::string_view bytes) : rest_{bytes} {}
    template <class T>
    T number() {
        T value{};
        if (rest_.size() < sizeof value) {
            ok_ = false;
            rest_ = {};
            return value;
        }
        std::memcpy(&value, rest_.data(), sizeof value);
        rest_.remove_prefix(sizeof value);
        return value;
    }
    std::string text() {
        const auto size = number<std::uint32_t>();
        if (size > rest_.size()) {
            ok_ = false;
            rest_ = {};
            return {};
        }
        std::string text{rest_.substr(0, size)};
        rest_.remove_prefix(size);
        return text;
    }
    /// All was there, and nothing is left.
    [[nodiscard]] bool ok() const { return ok_ && rest_.empty(); }
    [[nodiscard]] std::size_t left() const { return rest_.size(); }

private:
    std::string_view rest_;
    bool ok_ = true;
};

Error torn_frame(const char* what) {
    return {Errc::Protocol, std::string{"a grammar helper was sent a torn "} + what};
}

}  // namespace

std::string encode_task(const HelperTask& task) {
    FrameWriter writer;
    writer.number<std::int64_t>(task.limits.processor_time.count());
    writer.number(task.limits.memory_bytes);
    const GrammarVocabulary& vocabulary = task.vocabulary;
    writer.number<std::uint64_t>(vocabulary.vocab_size);
    writer.number(static_cast<std::uint32_t>(vocabulary.texts.size()));
    for (std::size_t i = 0; i < vocabulary.texts.size(); ++i) {
        writer.number<std::uint8_t>(vocabulary.control[i] ? 1 : 0);
        writer.text(vocabulary.texts[i]);
    }
    return std::move(writer.bytes);
}

Result<HelperTask> decode_task(std::string_view frame) {
    FrameReader reader{frame};
    HelperTask task;
    task.limits.processor_time = std::chrono::milliseconds{reader.number<std::int64_t>()};
    task.limits.memory_bytes = reader.number<std::uint64_t>();
    task.vocabulary.vocab_size = reader.number<std::uint64_t>();
    const auto tokens = reader.number<std::uint32_t>();
    if (tokens > task.vocabulary.vocab_size || tokens > reader.left())
        return torn_frame("vocabulary");
    for (std::uint32_t i = 0; i < tokens; ++i) {
        task.vocabulary.control.push_back(reader.number<std::uint8_t>() != 0);
        task.vocabulary.texts.push_back(reader.text());
    }
    if (!reader.ok()) return torn_frame("vocabulary");
    return task;
}

std::string encode_spec(const GrammarSpec& spec) {
    FrameWriter writer;
    writer.number(static_cast<std::uint8_t>(spec.kind));
    writer.text(spec.text);
    return std::move(writer.bytes);
}

Result<GrammarSpec> decode_spec(std::string_view frame) {
    FrameReader reader{frame};
    GrammarSpec spec;
    const auto kind = reader.number<std::uint8_t>();
    spec.text = reader.text();
    if (!reader.ok() || kind > static_cast<std::uint8_t>(GrammarKind::StructuralTag))
        return torn_frame("grammar");
    spec.kind = static_cast<GrammarKind>(kind);
    return spec;
}

std::string encode_reply(const Result<CompiledGrammarPtr>& reply) {
    FrameWriter writer;
    writer.number<std::uint8_t>(reply.ok() ? 1 : 0);
    writer.number(reply.ok() ? std::uint8_t{0} : static_cast<std::uint8_t>(reply.error().code));
    writer.text(reply.ok() ? reply.value()->bytes : reply.error().what);
    return std::move(writer.bytes);
}

Result<CompiledGrammarPtr> decode_reply(std::string_view frame, const std::string& hash) {
    FrameReader reader{frame};
    const bool compiled = reader.number<std::uint8_t>() != 0;
    const auto code = reader.number<std::uint8_t>();
    std::string text = reader.text();
    if (!reader.ok() || code > static_cast<std::uint8_t>(Errc::System)) return torn_frame("reply");
    if (!compiled) return Error{static_cast<Errc>(code), std::move(text)};
    return CompiledGrammarPtr{
        std::make_shared<const CompiledGrammar>(CompiledGrammar{hash, std::move(text)})};
}

bool write_frame(int fd, std::string_view frame) {
    const auto size = static_cast<std::uint32_t>(frame.size());
    std::string bytes{reinterpret_cast<const char*>(&size), sizeof size};
    bytes += frame;
    std::string_view rest = bytes;
    while (!rest.empty()) {
        const ssize_t sent = ::send(fd, rest.data(), rest.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        rest.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
}

std::optional<std::string> read_frame(int fd,
                                      std::size_t bytes_max,
                                      std::optional<std::chrono::milliseconds> limit) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + limit.value_or(std::chrono::milliseconds{0});
    std::string bytes;
    std::size_t wanted = sizeof(std::uint32_t);
    bool sized = false;
    for (;;) {
        if (bytes.size() == wanted) {
            if (sized) return bytes;
            std::uint32_t size = 0;
            std::memcpy(&size, bytes.data(), sizeof size);
            if (size > bytes_max) return std::nullopt;
            sized = true;
            wanted = size;
            bytes.clear();
            continue;
        }
        if (limit) {
            const auto left =
                std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
            pollfd ready{fd, POLLIN, 0};
            const int polled =
                ::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
            if (polled < 0 && errno == EINTR) continue;
            if (polled <= 0) return std::nullopt;
        }
        char part[65536];
        const ssize_t got = ::read(fd, part, std::min(sizeof part, wanted - bytes.size()));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return std::nullopt;
        bytes.append(part, static_cast<std::size_t>(got));
    }
}

}  // namespace paceline
