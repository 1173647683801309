#include <algorithm>

#include "ipc/base/utf8.hpp"
#include "model/tokenizer/tokenizer.hpp"

namespace paceline {

std::string Detokenizer::push(TokenId token) {
    const bool shown = std::find(shown_.begin(), shown_.end(), token) != shown_.end();
    if (!shown && tokenizer_->is_control(token)) return {};
    std::string_view bytes = tokenizer_->bytes_of(token);
    if (hides_space_ && !bytes.empty()) {
        hides_space_ = false;
        if (bytes[0] == ' ') bytes.remove_prefix(1);
    }
    pending_.append(bytes);
    std::string text;
    std::string_view rest = pending_;
    while (!rest.empty()) {
        const std::size_t valid = utf8::valid_prefix(rest);
        text.append(rest.substr(0, valid));
        rest.remove_prefix(valid);
        if (rest.empty()) break;
        const utf8::Step step = utf8::first(rest);
        if (step.form == utf8::Form::Unfinished)
            break;  // at most 3 bytes; the next token may end it
        text.append(utf8::kReplacement);
        rest.remove_prefix(step.bytes);
    }
    pending_.erase(0, pending_.size() - rest.size());
    return text;
}

std::string Detokenizer::finish() {
    if (pending_.empty()) return {};
    pending_.clear();
    return std::string{utf8::kReplacement};
}

}  // namespace paceline
