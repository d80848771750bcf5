"""All workloads by name, in the order in which they are measured."""

from benchmarks.workloads import (
    adjoints,
    black_scholes,
    conjugate_gradient,
    density,
    dispatch,
    distances,
    expression,
    heat,
    layer_norm,
    likelihoods,
    problems,
    running,
    softmax,
    sum_of_squares,
    variance,
)

WORKLOADS = {
    workload.name: workload
    for workload in (
        black_scholes.WORKLOAD,
        expression.WORKLOAD,
        sum_of_squares.WORKLOAD,
        softmax.WORKLOAD,
        layer_norm.WORKLOAD,
        variance.WORKLOAD,
        running.MEAN,
        running.SUM,
        heat.ONE_STEP,
        heat.HUNDRED_STEPS,
        conjugate_gradient.WORKLOAD,
        density.WORKLOAD,
        distances.ASSIGNMENT,
        distances.SOFT_ASSIGNMENT,
        distances.FORCES,
        problems.FACTOR,
        problems.FILTER,
        problems.RIDGES,
        problems.LEAST_SQUARES,
        dispatch.WORKLOAD,
        likelihoods.LOGISTIC,
        likelihoods.ENTROPY,
        likelihoods.DENSITY,
        likelihoods.PROCESS,
        adjoints.HEAT,
        adjoints.NET,
        adjoints.PEAKS_FIT,
    )
}
