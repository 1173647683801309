// Replan: whether the method that decodes many answers is to be chosen again: the speed that was
// predicted for it is wrong by kError, kLooks times in a row and in the same direction.
//
//     measured(gain)    a look at a running pipeline; true: plan again, with this gain for it
//     pays()            whether another method gains enough on what is left to be loaded for it
//
// Speeds are times plain decoding: the load of the machine slows both. Hysteresis: after "plan
// again" the prediction is what was measured, so the same error is not told twice, and another
// method must be predicted to gain kLead times as much as the running one has.
// Pure; one thread.
#pragma once

namespace paceline {

class Replan {
public:
    static constexpr double kError = 0.2;
    static constexpr int kLooks = 3;
    static constexpr double kLead = 1.05;

    /// `predicted`: of the method that runs; 0: nothing was, and the first look is the prediction.
    explicit Replan(double predicted) : predicted_{predicted} {}

    /// `gain` > 0.
    [[nodiscard]] bool measured(double gain);

    struct Change {
        double gain = 1.0;              // of the method that runs, as measured
        double other_gain = 1.0;        // of the other one, as predicted
        double plain_seconds_left = 0;  // what the rest takes plainly
        double load_seconds = 0;        // of the one that runs; the other's is taken to be as long
    };
    [[nodiscard]] static bool pays(const Change& change);

private:
    double predicted_;
    int above_ = 0;  // looks in a row that were too fast,
    int below_ = 0;  // and too slow
};

}  // namespace paceline
