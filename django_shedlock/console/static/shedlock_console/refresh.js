/* Refreshes parts of a page in place: what was typed, ticked, unfolded or focused stays.

   A part is an element with an id and the attribute data-shedlock-refresh. The server is
   asked for the page's parts alone, so it shows (and forgets) no message here. The line
   with data-shedlock-every, the shortest interval in seconds, tells the time of the last
   answer and has the button that pauses. With data-shedlock-long, only the locks that
   the page shows, and those that need attention, are asked for. An answer has
   data-shedlock-limit seconds to come. While the page is out of date, the line says so
   wherever the reader has scrolled to. What has the attribute data-shedlock-finding is
   announced to screen readers when it is new. */
"use strict";
{
    const PAUSED = "django_shedlock.paused";
    const PARTS = "[data-shedlock-refresh][id]";
    /* The page waits this many times as long as the last answer took. */
    const REST = 10;
    /* What the reader changes, and the server does not know. */
    const OWN = {DETAILS: ["open"], TR: ["class"]};

    function hasFocus(node) {
        return node.contains(document.activeElement);
    }

    function keyOf(element) {
        return element.dataset.shedlockKey;
    }

    function isKeyed(parent) {
        return parent.children.length > 0 && Array.from(parent.children).every(keyOf);
    }

    function haveSameShape(old, fresh) {
        const kinds = (node) => Array.from(node.childNodes, (child) => child.nodeName);
        return kinds(old).join() === kinds(fresh).join();
    }

    function updateAttributes(old, fresh) {
        const own = OWN[old.nodeName] || [];
        const names = [...old.getAttributeNames(), ...fresh.getAttributeNames()];
        for (const name of names.filter((each) => !own.includes(each))) {
            if (!fresh.hasAttribute(name)) {
                old.removeAttribute(name);
            } else if (old.getAttribute(name) !== fresh.getAttribute(name)) {
                old.setAttribute(name, fresh.getAttribute(name));
            }
        }
    }

    function updateKeyed(old, fresh) {
        const known = new Map(Array.from(old.children, (child) => [keyOf(child), child]));
        const children = Array.from(fresh.children, (child) => {
            const same = known.get(keyOf(child));
            if (!same) {
                return document.importNode(child, true);
            }
            update(same, child);
            return same;
        });
        const isSame =
            children.length === old.children.length &&
            children.every((child, index) => child === old.children[index]);
        /* To move them would take the focus from whoever is in one of them. */
        if (!isSame && !hasFocus(old)) {
            old.replaceChildren(...children);
        }
    }

    function update(old, fresh) {
        if (old.nodeType !== Node.ELEMENT_NODE) {
            if (old.nodeValue !== fresh.nodeValue) {
                old.nodeValue = fresh.nodeValue;
            }
            return;
        }
        if (old.matches("input, select, textarea") || old.isEqualNode(fresh)) {
            return;
        }
        updateAttributes(old, fresh);
        if (isKeyed(old) && isKeyed(fresh)) {
            updateKeyed(old, fresh);
        } else if (haveSameShape(old, fresh)) {
            const children = Array.from(fresh.childNodes);
            children.forEach((child, index) => update(old.childNodes[index], child));
        } else if (!hasFocus(old)) {
            const copies = Array.from(fresh.childNodes, (child) =>
                document.importNode(child, true),
            );
            old.replaceChildren(...copies);
        }
    }

    function updateParts(page) {
        const parts = Array.from(document.querySelectorAll(PARTS));
        const answers = parts.map((part) => page.getElementById(part.id));
        if (!answers.every(Boolean)) {
            throw new Error("not the parts of this page");
        }
        parts.forEach((part, index) => update(part, answers[index]));
        document.dispatchEvent(new Event("shedlock:refreshed"));
    }

    function findings() {
        const found = document.querySelectorAll("[data-shedlock-finding]");
        return Array.from(found, (each) => each.dataset.shedlockFinding);
    }

    class LoggedOut extends Error {}

    function shownLocks() {
        const form = new FormData();
        const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
        form.append("csrfmiddlewaretoken", token);
        for (const lock of document.querySelectorAll("tbody[data-shedlock-key]")) {
            form.append("shedlock_shown", keyOf(lock).slice("lock ".length));
        }
        return form;
    }

    async function fetchParts(seconds, isLong) {
        const response = await fetch(window.location.href, {
            ...(isLong ? {method: "POST", body: shownLocks()} : {}),
            credentials: "same-origin",
            cache: "no-store",
            headers: {"X-Shedlock-Refresh": "yes"},
            redirect: "manual",
            signal: AbortSignal.timeout(seconds * 1000),
        });
        /* These pages redirect nobody who may see them, unless the row was deleted. */
        const isAway = response.type === "opaqueredirect";
        if (isAway || [401, 403].includes(response.status)) {
            throw new LoggedOut();
        }
        if (!response.ok) {
            throw new Error(`status ${response.status}`);
        }
        return new DOMParser().parseFromString(await response.text(), "text/html");
    }

    function start(line) {
        const status = line.querySelector("[data-shedlock-status]");
        const news = line.querySelector("[aria-live]");
        const button = line.querySelector("button");
        const clock = () => new Date().toLocaleTimeString(document.documentElement.lang);
        let last = clock();
        let paused = localStorage.getItem(PAUSED) === "yes";
        let waiting = false;
        let timer = null;
        let due = 0;

        function plan(milliseconds) {
            const shortest = Number(line.dataset.shedlockEvery) * 1000;
            const pause = Math.max(shortest, REST * milliseconds);
            due = performance.now() + pause;
            window.clearTimeout(timer);
            timer = window.setTimeout(refresh, pause);
        }

        function show() {
            button.textContent = paused ? button.dataset.resume : button.dataset.pause;
            if (paused) {
                say(`${status.dataset.paused} ${last}`);
            }
        }

        function say(text, isAlarm = false) {
            line.classList.toggle("shedlock-stale", isAlarm);
            if (isAlarm) {
                status.setAttribute("role", "alert");
            } else {
                status.removeAttribute("role");
            }
            if (status.textContent !== text) {
                status.textContent = text;
            }
        }

        async function refresh() {
            if (paused || waiting || document.hidden) {
                return;
            }
            waiting = true;
            const began = performance.now();
            try {
                const {shedlockLimit, shedlockLong} = line.dataset;
                const isLong = shedlockLong !== undefined;
                const page = await fetchParts(Number(shedlockLimit), isLong);
                if (paused) {
                    return;
                }
                const known = new Set(findings());
                updateParts(page);
                const found = findings().filter((each) => !known.has(each));
                if (found.length) {
                    news.textContent = `${news.dataset.new} ${found.join(", ")}`;
                }
                last = clock();
                say(`${status.dataset.updated} ${last}`);
            } catch (error) {
                if (!paused) {
                    const {out, failed} = status.dataset;
                    const why = error instanceof LoggedOut ? out : failed;
                    say(`${status.dataset.paused} ${last}: ${why}`, true);
                }
            } finally {
                waiting = false;
                plan(performance.now() - began);
            }
        }

        function refreshIfDue() {
            if (performance.now() >= due) {
                refresh();
            }
        }

        button.addEventListener("click", () => {
            paused = !paused;
            localStorage.setItem(PAUSED, paused ? "yes" : "no");
            show();
            refresh();
        });
        document.addEventListener("visibilitychange", refreshIfDue);
        line.hidden = false;
        show();
        plan(0);
    }

    document.addEventListener("DOMContentLoaded", () => {
        const line = document.querySelector("[data-shedlock-every]");
        if (line) {
            start(line);
        }
    });
}
