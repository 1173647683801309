// The Generator of one process: a PlainDecoder on a backend that holds all layers.
#include <chrono>

#include "launch/load/gpu_check.hpp"
#include "launch/load/model_grammars.hpp"
#include "launch/placement/memory_plan.hpp"
#include "launch/session/generator.hpp"

namespace paceline {

namespace {

std::chrono::microseconds steady_now() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now);
}

class PlainGenerator final : public TokenGenerator {
public:
    PlainGenerator(std::unique_ptr<Backend> backend, PlainDecoder decoder, int threads)
        : backend_{std::move(backend)}, decoder_{std::move(decoder)}, threads_{threads} {}

    Result<AnswerStats> run(const Request& request,
                            const PlainDecoder::OnToken& on_token,
                            const CancelToken& cancel) override {
        return decoder_.run(request, on_token, &cancel, steady_now);
    }

    void on_scores(PlainDecoder::OnScores scores) override {
        decoder_.on_scores(std::move(scores));
    }
    [[nodiscard]] Position text_tokens() const override {
        return static_cast<Position>(decoder_.text().size());
    }
    [[nodiscard]] Position context() const override { return decoder_.context(); }
    void reset() override { decoder_.reset(); }
    void on_prefill(std::function<void(double part)> progress) override {
        decoder_.on_prefill(std::move(progress));
    }
    [[nodiscard]] GeneratorTraits traits() const override {
        return {.method = "plain",
                .equality_class = backend_->equality_class(),
                .threads = threads_,
                .memory = backend_->memory_use(),
                .peak_bytes = 0};
    }

private:
    std::unique_ptr<Backend> backend_;  // before the decoder, which borrows it
    PlainDecoder decoder_;
    int threads_;
};

}  // namespace

Result<std::unique_ptr<TokenGenerator>> make_plain_generator(const ModelFile& file,
                                                             const ModelOptions& options,
                                                             Show bars) {
    const Device device = device_of(options);
    if (Status s = check_device(device); !s) return s.error();
    Result<Machine> machine = read_machine();
    if (!machine) return machine.error();
    const ThreadPlan plan = plan_threads(machine.value(), options.threads);
    const int context = context_of(options, file.config());
    const CpuOptions cpu = cpu_options(options, plan, context, device);
    if (Status s =
            check_memory({plan_backend(file, cpu, "model", device)}, read_available_memory());
        !s)
        return s.error();
    Result<std::unique_ptr<Backend>> backend = load_backend(file, cpu, device, bars);
    if (!backend) return backend.error();
    Result<PlainDecoder> decoder = PlainDecoder::make(
        *backend.value(), PlainOptions{.context = context, .grammars = lazy_grammar_loader([&file] {
                                                               return grammar_vocabulary_of(file);
                                                           })});
    if (!decoder) return decoder.error();
    return std::unique_ptr<TokenGenerator>{std::make_unique<PlainGenerator>(
        std::move(backend).value(), std::move(decoder).value(), device.gpu ? 1 : plan.threads)};
}

}  // namespace paceline
