from tollhouse.accounting.admission.accounts import InFlight


def test_estimates_of_running_requests_are_held() -> None:
    in_flight = InFlight()
    in_flight.begin(30)
    in_flight.begin(12)
    assert in_flight.held_nano(0.0) == 42


def test_the_actual_cost_takes_the_estimates_place_until_the_window_is_over() -> None:
    in_flight = InFlight()
    in_flight.begin(30)
    in_flight.end(30, 7, 0.0, 5.0)
    assert in_flight.held_nano(4.999) == 7
    assert in_flight.held_nano(5.0) == 0


def test_nothing_stays_of_a_request_that_cost_nothing() -> None:
    in_flight = InFlight()
    in_flight.begin(30)
    in_flight.end(30, 0, 0.0, 5.0)
    assert in_flight.held_nano(0.0) == 0
    assert in_flight.next_change(0.0) is None


def test_it_tells_when_enough_will_have_left() -> None:
    in_flight = InFlight()
    for number, cost in enumerate((5, 10, 20)):
        in_flight.begin(1)
        in_flight.end(1, cost, float(number), 5.0)
    assert in_flight.next_change(2.0) == 5.0
    assert in_flight.seconds_until(5, 2.0) == 3.0
    assert in_flight.seconds_until(6, 2.0) == 4.0
    assert in_flight.seconds_until(35, 2.0) == 5.0
    assert in_flight.seconds_until(36, 2.0) is None


def test_what_is_over_is_forgotten_though_nobody_asks() -> None:
    in_flight = InFlight()
    for second in range(100):
        in_flight.begin(1)
        in_flight.end(1, 1, float(second), 5.0)
    assert in_flight.recent_nano == 5
