#include "model/grammar/compiled_form.hpp"

#include <charconv>

namespace paceline {
namespace {

constexpr std::string_view kBegin = "paceline-grammar";

}  // namespace

std::string write_form(const CompiledForm& form) {
    std::string bytes{kBegin};
    for (const TokenId token : form.named) bytes += ' ' + std::to_string(token);
    bytes += '\n';
    return bytes + form.library;
}

Result<CompiledForm> read_form(std::string_view bytes) {
    const Error bad{Errc::BadFile, "the bytes are not those of a compiled grammar"};
    const std::size_t end = bytes.find('\n');
    if (!bytes.starts_with(kBegin) || end == bytes.npos) return bad;
    CompiledForm form{{}, std::string{bytes.substr(end + 1)}};
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
