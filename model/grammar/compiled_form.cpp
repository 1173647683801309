#include "model/grammar/compiled_form.hpp"

#include <charconv>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <utility>
#include <zstd.h>

namespace paceline {
namespace {

constexpr std::string_view kBegin = "paceline-grammar";
constexpr int kLevel = 3;  // 30 ms for 4 MB; 1 leaves four times as much

std::optional<std::string> compressed(const std::string& text) {
    const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context{ZSTD_createCCtx(),
                                                                       &ZSTD_freeCCtx};
    if (context == nullptr) return std::nullopt;
    ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
    ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
    std::string frame(ZSTD_compressBound(text.size()), '\0');
    const std::size_t size =
        ZSTD_compress2(context.get(), frame.data(), frame.size(), text.data(), text.size());
    if (ZSTD_isError(size) != 0) return std::nullopt;
    frame.resize(size);
    return frame;
}

std::optional<std::string> decompressed(std::string_view frame) {
    const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
    if (size > kLibraryFormMax) return std::nullopt;  // its error codes are larger, too
    std::string text(static_cast<std::size_t>(size), '\0');
    const std::size_t read = ZSTD_decompress(text.data(), text.size(), frame.data(), frame.size());
    if (ZSTD_isError(read) != 0 || read != text.size()) return std::nullopt;
    return text;
}

}  // namespace

Result<std::string> write_form(const CompiledForm& form) {
    const std::string& text = form.library;
    if (text.size() > kLibraryFormMax)
        return Error{Errc::BadArgument,
                     fmt::format("{} bytes, at most {} are allowed", text.size(), kLibraryFormMax)};
    const std::optional<std::string> frame = compressed(text);
    if (!frame) return Error{Errc::OutOfMemory, "there is no memory to compress it"};
    std::string bytes{kBegin};
    for (const TokenId token : form.named) bytes += ' ' + std::to_string(token);
    bytes += '\n';
    return bytes + *frame;
}

Result<CompiledForm> read_form(std::string_view bytes) {
    const Error bad{Errc::BadFile, "the bytes are not those of a compiled grammar"};
    const std::size_t end = bytes.find('\n');
    if (!bytes.starts_with(kBegin) || end == bytes.npos) return bad;
    std::optional<std::string> library = decompressed(bytes.substr(end + 1));
    if (!library) return bad;
    CompiledForm form{{}, std::move(*library)};
    std::string_view rest = bytes.substr(kBegin.size(), end - kBegin.size());
    while (!rest.empty()) {
        if (rest.front() != ' ') return bad;
        rest.remove_prefix(1);
        TokenId token = 0;
        const auto [next, error] = std::from_chars(rest.data(), rest.data() + rest.size(), token);
        if (error != std::errc{}) return bad;
        rest.remove_prefix(static_cast<std::size_t>(next - rest.data()));
        form.named.push_back(token);
    }
    return form;
}

}  // namespace paceline
