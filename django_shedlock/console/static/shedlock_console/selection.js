/* Counts the selected locks also when some have come or gone since the page was loaded:
   Django's own script knows only the check boxes that came with the page. */
"use strict";
{
    function boxes() {
        return Array.from(document.querySelectorAll("#result_list input.action-select"));
    }

    function recount() {
        const counter = document.querySelector("span.action-counter");
        const all = document.getElementById("action-toggle");
        if (!counter || !all) {
            return;
        }
        const sel = boxes().filter((box) => box.checked).length;
        const cnt = boxes().length;
        const format = ngettext(
            "%(sel)s of %(cnt)s selected",
            "%(sel)s of %(cnt)s selected",
            sel,
        );
        counter.dataset.actionsIcnt = cnt;
        counter.textContent = interpolate(format, {sel, cnt}, true);
        all.checked = sel > 0 && sel === cnt;
    }

    function selectAll(checked) {
        for (const box of boxes()) {
            box.checked = checked;
            box.closest("tr").classList.toggle("selected", checked);
        }
    }

    function onChange(event) {
        if (event.target.id === "action-toggle") {
            selectAll(event.target.checked);
        }
        if (event.target.closest("#result_list")) {
            recount();
        }
    }

    document.addEventListener("change", onChange);
    document.addEventListener("shedlock:refreshed", recount);
}
