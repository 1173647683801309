#include "launch/serve/http_grammar.hpp"

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ipc/transport/owned_fd.hpp"
#include "launch/serve/http_wakeup.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::seconds kClientLook{1};

/// What a helper's thread leaves for the coroutine, which may be gone by then.
struct Compilation {
    std::mutex mutex;
    std::optional<Result<CompiledGrammarPtr>> made;
    OwnedFd bell{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

    void end(const Result<CompiledGrammarPtr>& result) {
        const std::lock_guard lock{mutex};
        made = result;
        const std::uint64_t one = 1;
        if (bell.get() >= 0) (void)!::write(bell.get(), &one, sizeof one);
    }
    [[nodiscard]] std::optional<Result<CompiledGrammarPtr>> result() {
        const std::lock_guard lock{mutex};
        return made;
    }
};

ApiError error_for(const Error& error, const std::string& field) {
    if (error.code == Errc::Unsupported)
        return not_implemented(field, field + ": " + visible(error.what, kLineShownBytesMax));
    if (error.code == Errc::BadArgument)
        return bad_field(field, visible(error.what, kLineShownBytesMax));
    return {.status = 503,
            .message = visible(error.what, kLineShownBytesMax),
            .param = field,
            .code = "grammar_not_compiled",
            .retry_after_s = 1};
}

/// Nothing: the client has closed meanwhile.
asio::awaitable<std::optional<Result<CompiledGrammarPtr>>> compiled_form(const GrammarSpec& grammar,
                                                                         HttpStream& stream,
                                                                         HttpContext& context) {
    const auto compilation = std::make_shared<Compilation>();
    const std::weak_ptr<Compilation> waiter = compilation;
    context.model->service->compile(
        grammar,
        [waiter](const Result<CompiledGrammarPtr>& made) {
            if (const auto still = waiter.lock()) still->end(made);
        },
        waiter);
    Wakeup wakeup{stream.socket()};
    wakeup.watch(compilation->bell.get());
    std::optional<Result<CompiledGrammarPtr>> result = compilation->result();
    while (!result && !wakeup.client_closed()) {
        co_await wakeup.wait_until(Wakeup::Clock::now() + kClientLook);
        result = compilation->result();
    }
    co_return result;
}

void use_grammar(PreparedAnswers& prepared,
                 const GrammarSpec& grammar,
                 const CompiledGrammarPtr& form) {
    for (ServiceOrder& order : prepared.orders) {
        order.request.grammar = grammar;
        order.request.compiled = form;
    }
}

}  // namespace

asio::awaitable<std::optional<ApiError>> compile_for(PreparedAnswers& prepared,
                                                     HttpStream& stream,
                                                     HttpContext& context) {
    if (!prepared.grammar.any()) co_return std::nullopt;
    const std::array<GrammarSpec, 2> wanted{prepared.grammar, prepared.looser_grammar};
    Error refused;
    for (const GrammarSpec& grammar : wanted) {
        if (!grammar.any()) break;
        const std::optional<Result<CompiledGrammarPtr>> result =
            co_await compiled_form(grammar, stream, context);
        if (!result)
            co_return ApiError{.status = 499, .message = "the client has closed", .ends = true};
        if (*result) {
            use_grammar(prepared, grammar, result->value());
            co_return std::nullopt;
        }
        refused = result->error();
        if (refused.code != Errc::BadArgument) break;
    }
    // Of tools that only may be called the answers are read without a grammar, too.
    if (!prepared.looser_grammar.any() || refused.code != Errc::BadArgument)
        co_return error_for(refused, prepared.grammar_field);
    use_grammar(prepared, {}, nullptr);
    co_return std::nullopt;
}

}  // namespace paceline::serve
