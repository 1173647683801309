#include "model/tokenizer/text_steps.hpp"

#include <utility>

#include "model/tokenizer/nfc.hpp"

namespace paceline {
namespace {

void to_normal_form(MarkedText& marked) {
    if (unicode::surely_nfc(marked.text)) return;
    std::string normal = unicode::nfc(marked.text);
    if (normal == marked.text) return;
    const bool of_user = marked.origins.find('u') != marked.origins.npos;
    marked.origins.assign(normal.size(), of_user ? 'u' : 't');
    marked.text = std::move(normal);
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
                to_normal_form(marked);
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
