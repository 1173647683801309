#include "model/tokenizer/text_steps.hpp"

#include <utility>

#include "model/tokenizer/nfc.hpp"

namespace paceline {
namespace {

/// A normal form by parts: no character whose first byte is below `first_changed` joins what stands
/// in front of it.
struct NormalForm {
    std::string (*of)(std::string_view);
    bool (*surely)(std::string_view);  // whether it leaves a text as it is
    unsigned char first_changed;
};
constexpr NormalForm kFormC{unicode::nfc, unicode::surely_nfc, 0xCC};     // U+0300
constexpr NormalForm kFormKC{unicode::nfkc, unicode::surely_nfkc, 0x80};  // all but ASCII

/// Where the run of characters ends that begins at `at` and may change.
std::size_t run_end(const NormalForm& form, std::string_view text, std::size_t at) {
    while (at < text.size()) {
        const auto byte = static_cast<unsigned char>(text[at]);
        const bool inside = byte >= 0x80 && byte < 0xC0;
        if (!inside && byte < form.first_changed) break;
        ++at;
    }
    return at;
}

/// Each character that stays with the run of others behind it is a part. The origins of parts that
/// stay as they are stay too.
void to_normal_form(const NormalForm& form, MarkedText& marked) {
    const auto stays = [&](char c) { return static_cast<unsigned char>(c) < form.first_changed; };
    if (form.surely(marked.text)) return;
    const std::string_view text = marked.text, origins = marked.origins;
    MarkedText out;
    out.text.reserve(text.size());
    out.origins.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        std::size_t run = at;
        while (run < text.size() && stays(text[run])) ++run;
        std::size_t begin = run;
        if (begin > at && begin < text.size()) {
            --begin;
            while (begin > at && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U)
                --begin;
        }
        const std::size_t end = run_end(form, text, run);
        const std::string_view part = text.substr(begin, end - begin);
        const std::string_view wrote = origins.substr(begin, end - begin);
        const std::string normal = form.of(part);
        out.text.append(text, at, begin - at).append(normal);
        out.origins.append(origins, at, begin - at);
        if (normal == part) {
            out.origins.append(wrote);
        } else {
            out.origins.append(normal.size(), wrote.find('u') == wrote.npos ? 't' : 'u');
        }
        at = end;
    }
    marked = std::move(out);
}

void prepend(const TextStep& step, MarkedText& marked) {
    if (marked.text.empty()) return;
    marked.text.insert(0, step.to);
    marked.origins.insert(0, step.to.size(), 't');
}

void replace(const TextStep& step, MarkedText& marked) {
    std::size_t found = marked.text.find(step.from);
    if (found == marked.text.npos) return;
    MarkedText out;
    out.text.reserve(marked.text.size());
    out.origins.reserve(marked.text.size());
    std::size_t kept = 0;
    for (; found != marked.text.npos; found = marked.text.find(step.from, kept)) {
        out.text.append(marked.text, kept, found - kept).append(step.to);
        out.origins.append(marked.origins, kept, found - kept);
        const bool of_user =
            marked.origins.substr(found, step.from.size()).find('u') != std::string::npos;
        out.origins.append(step.to.size(), of_user ? 'u' : 't');
        kept = found + step.from.size();
    }
    out.text.append(marked.text, kept);
    out.origins.append(marked.origins, kept);
    marked = std::move(out);
}

}  // namespace

void apply_steps(std::span<const TextStep> steps, Prepends prepends, MarkedText& marked) {
    for (const TextStep& step : steps) {
        switch (step.kind) {
            case TextStep::Kind::NormalFormC:
                to_normal_form(kFormC, marked);
                break;
            case TextStep::Kind::NormalFormKC:
                to_normal_form(kFormKC, marked);
                break;
            case TextStep::Kind::Prepend:
                if (prepends == Prepends::Yes) prepend(step, marked);
                break;
            case TextStep::Kind::Replace:
                replace(step, marked);
                break;
        }
    }
}

}  // namespace paceline
