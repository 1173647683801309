#include "launch/cli/line_editor.hpp"

#include <cerrno>
#include <clocale>
#include <cstddef>
#include <cstdio>
#include <cwchar>
#include <histedit.h>
#include <poll.h>
#include <unistd.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "launch/base/text_input.hpp"

namespace paceline {

namespace {

constexpr int kHistory = 500;
constexpr int kGlanceMillis = 50;
constexpr wchar_t kEndOfInput = 4;  // Ctrl-D
// Bracketed paste: a terminal that is told so puts these around text that is pasted.
constexpr const char* kPasteOn = "\x1b[?2004h";
constexpr const char* kPasteOff = "\x1b[?2004l";
constexpr const char* kPasteBegins = "\x1b[200~";
constexpr std::wstring_view kPasteEnds = L"\x1b[201~";

}  // namespace

class LineEditor::Impl {
public:
    explicit Impl(std::function<bool()> signalled) : asked_{std::move(signalled)} {
        // Text of models is UTF-8, whatever the user's language.
        if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) std::setlocale(LC_CTYPE, "");
        editor_ = el_init("paceline", stdin, stderr, stderr);
        history_ = history_init();
        PACE_CHECK(editor_ != nullptr && history_ != nullptr, "libedit has memory");
        HistEvent event{};
        history(history_, &event, H_SETSIZE, kHistory);
        history(history_, &event, H_SETUNIQUE, 1);
        el_set(editor_, EL_CLIENTDATA, this);
        el_set(editor_, EL_PROMPT, &Impl::prompt);
        el_set(editor_, EL_HIST, history, history_);
        el_set(editor_, EL_EDITOR, "emacs");
        el_set(editor_, EL_GETCFN, &Impl::next_letter);
        el_set(editor_, EL_ADDFN, "paste", "takes pasted text in one piece", &Impl::paste);
        el_set(editor_, EL_BIND, kPasteBegins, "paste", nullptr);
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    ~Impl() {
        el_end(editor_);
        history_end(history_);
    }

    ReadLine read(const std::string& prompt) {
        prompt_ = prompt;
        signalled_ = in_text_ = too_long_ = false;
        tell(kPasteOn);
        el_resize(editor_);  // the terminal may have another size now
        el_set(editor_, EL_PREP_TERM,
               1);  // before the prompt: nothing typed behind it is echoed twice
        int length = 0;
        const char* line = el_gets(editor_, &length);
        tell(kPasteOff);
        if (signalled_) return {in_text_ ? ReadEnd::SignalInText : ReadEnd::Signal};
        if (too_long_) return {ReadEnd::TooLong};
        if (line == nullptr || length <= 0) return {ReadEnd::End};
        ReadLine read{ReadEnd::Line, std::string{line, static_cast<std::size_t>(length)}};
        if (!read.text.empty() && read.text.back() == '\n') read.text.pop_back();
        if (!read.text.empty()) {
            HistEvent event{};
            history(history_, &event, H_ENTER, read.text.c_str());
        }
        return read;
    }

private:
    static Impl& self(EditLine* editor) {
        Impl* impl = nullptr;
        el_get(editor, EL_CLIENTDATA, &impl);
        return *impl;
    }
    static char* prompt(EditLine* editor) { return self(editor).prompt_.data(); }

    static void tell(const char* sequence) {
        std::fputs(sequence, stderr);
        std::fflush(stderr);
    }

    /// libedit's own waits on after a signal.
    static int next_letter(EditLine* editor, wchar_t* letter) {
        Impl& impl = self(editor);
        const LineInfo* line = el_line(editor);
        if (line->lastchar - line->buffer > static_cast<std::ptrdiff_t>(kTextBytesMax)) {
            impl.too_long_ = true;
            return -1;
        }
        std::mbstate_t state{};
        for (;;) {
            pollfd input{STDIN_FILENO, POLLIN, 0};
            const int ready = ::poll(&input, 1, kGlanceMillis);
            if (impl.asked_()) {
                impl.signalled_ = true;
                impl.in_text_ = line->lastchar > line->buffer;
                return -1;
            }
            if (ready <= 0) continue;
            char byte = 0;
            const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) return static_cast<int>(count);
            const std::size_t used = std::mbrtowc(letter, &byte, 1, &state);
            if (used == static_cast<std::size_t>(-2)) continue;  // a letter of several bytes
            if (used == static_cast<std::size_t>(-1)) {
                state = {};
                continue;  // no UTF-8
            }
            const bool behind_text = line->cursor == line->lastchar && line->cursor > line->buffer;
            if (*letter == kEndOfInput && behind_text && !impl.pasting_) *letter = L'\n';
            return 1;
        }
    }

    /// Inserts everything up to the end of the paste; newlines among it end no line.
    static unsigned char paste(EditLine* editor, int /*key*/) {
        Impl& impl = self(editor);
        impl.pasting_ = true;
        std::wstring text;
        wchar_t letter = 0;
        while (el_wgetc(editor, &letter) == 1) {
            text += letter == L'\r' ? L'\n' : letter;
            if (text.ends_with(kPasteEnds)) {
                text.resize(text.size() - kPasteEnds.size());
                break;
            }
            // The rest is read and dropped: what stays unread would go to the shell.
            if (text.size() > kTextBytesMax) {
                impl.too_long_ = true;
                text.erase(0, text.size() - kPasteEnds.size());
            }
        }
        impl.pasting_ = false;
        if (impl.too_long_) return CC_EOF;
        std::erase_if(text, [](wchar_t c) { return c < L' ' && c != L'\n' && c != L'\t'; });
        if (text.empty()) return CC_NORM;
        return el_winsertstr(editor, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    }

    std::function<bool()> asked_;
    EditLine* editor_ = nullptr;
    History* history_ = nullptr;
    std::string prompt_;
    bool signalled_ = false;
    bool in_text_ = false;  // when the signal came
    bool too_long_ = false;
    bool pasting_ = false;
};

LineEditor::LineEditor(std::function<bool()> signalled)
    : impl_{std::make_unique<Impl>(std::move(signalled))} {}
LineEditor::~LineEditor() = default;

ReadLine LineEditor::read(const std::string& prompt) {
    return impl_->read(prompt);
}

}  // namespace paceline
